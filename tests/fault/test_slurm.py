"""Jobs on a real Slurm, through the real `hw`: ranks on two nodes, why one waits, and every daemon
killed in turn.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.driver import Hw
from tests.rigs.slurm_rig import SlurmCluster
from tests.slurmed import on_slurm, wait_saved
from tests.waiting import wait_until

TRAIN = """
import os, time, headway as hw
for i in range(int(os.environ.get("STEPS", "3"))):
    hw.log({"loss": 1 / (i + 1)}, step=i)
    print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "gpu", os.environ["CUDA_VISIBLE_DEVICES"],
          "procid", os.environ["SLURM_PROCID"], flush=True)
    time.sleep(float(os.environ.get("PAUSE", "0")))
"""


@pytest.fixture
def hw(home: Path, tmp_path: Path, slurm: SlurmCluster) -> Iterator[Hw]:
    with on_slurm(home, tmp_path, slurm, TRAIN) as driver:
        yield driver


def test_eight_ranks_on_two_nodes_with_their_gpus_metrics_and_output(hw: Hw) -> None:
    done = hw("-c", "lab", "-n", "8", "submit", "--wait", sys.executable, "train.py", timeout_s=100)
    lines = [line for line in done.stdout.decode().splitlines() if "rank" in line]
    assert len(lines) == 24
    for rank in range(8):
        assert sum(f"rank {rank} of 8 gpu {rank % 4} procid {rank}" in line for line in lines) == 3
    [job] = hw.json("ls")
    asked = hw.json("q", job["id"])
    assert (
        asked["state"] == "succeeded"
        and asked["engine"] == "slurm"
        and asked["engine_id"].isdigit()
    )
    assert len({task["node"] for task in asked["attempts"][0]["tasks"]}) == 2
    series = hw.json("metrics", job["id"], "-m", "loss")[job["id"]]["loss"]
    assert sorted(one["rank"] for one in series) == list(range(8))
    assert all(one["step"] == [0, 1, 2] for one in series)


def test_a_job_that_waits_says_why_and_one_that_never_fits_is_refused(hw: Hw) -> None:
    for _ in range(2):
        hw.submit("-c", "lab", "-n", "16", "--max-duration", "5m", "sleep", "200")
    wait_until(lambda: len(hw.json("ls", "--state", "running")) == 1, 150, "the first to run")
    [waiting] = hw.json("ls", "--state", "waiting")
    why = hw.json("why", waiting["id"])
    assert why["verdict"].startswith(("Resources: ", "Priority: "))
    assert len(why["waiting"]["free"]) == 4 and all(
        node["gpus"] == 0 for node in why["waiting"]["free"]
    )
    assert why["waiting"]["fit"] == "none of the 16 GPUs that it needs are free"
    refused = hw("-c", "lab", "-n", "20", "submit", "true")
    assert (
        refused.returncode != 0
        and "needs 5 nodes with 4 GPUs, and there are 4" in refused.stderr.decode()
    )
    uneven = hw("-c", "lab", "-n", "6", "submit", "true")
    assert "use -n 4 or -n 8" in uneven.stderr.decode()


def test_gpus_that_are_free_but_do_not_lie_together_are_told_with_what_would_start_now(
    hw: Hw, slurm: SlurmCluster
) -> None:
    thin = [
        "sbatch",
        "--parsable",
        "-N4",
        "--gres=gpu:2",
        "-t",
        "9",
        "-o",
        "/dev/null",
        "--wrap",
        "sleep 300",
    ]
    holder = slurm.command(*thin).stdout.strip()
    try:
        wait_until(
            lambda: slurm.command("squeue", "-h", "-j", holder, "-o", "%T").stdout == "RUNNING\n",
            60,
            "a start",
        )
        job = hw.submit("-c", "lab", "-n", "8", "--max-duration", "20m", "sleep", "1")
        wait_until(
            lambda: hw.json("why", job)["verdict"].startswith("Resources: "), 60, "Slurm's reason"
        )
        told = hw("why", job).stdout.decode()
        assert "needs    8 GPUs = 2 nodes × 4, " in told
        assert "8 GPUs are free, but on four nodes two each; you ask for two nodes of four" in told
        assert f"(Slurm {holder}) reaches its time limit" in told
        wide = "sooner -n 8 --nodes 4 would start now on node[1-4] (sbatch --test-only)"
        wait_until(
            lambda: wide in " ".join(hw("why", job).stdout.decode().split()),
            60,
            "what would start now",
        )
        node = hw.json("clusters")[-1]["nodes"][0]
        assert (node["gpus"], node["free_gpus"]) == (4, 2)
    finally:
        slurm.command("scancel", holder)


def test_controller_and_server_killed_in_turn_leave_a_true_state_and_all_output(
    hw: Hw, slurm: SlurmCluster
) -> None:
    env = ["--env", "STEPS=60", "--env", "PAUSE=0.25"]
    job = hw.submit("-c", "lab", "-n", "4", *env, sys.executable, "train.py")
    wait_until(lambda: len(hw.points(job, "loss")) > 3, 90, "its first points")
    wait_saved(slurm, hw.json("q", job)["engine_id"])
    slurm.kill("slurmctld")
    hw.kill_server()
    # a new server; Slurm does not answer
    assert hw.json("q", job)["state"] in ("running", "unknown")
    slurm.start_controller()
    wait_until(lambda: hw.json("q", job)["state"] == "succeeded", 90, "its end")
    lines = hw("logs", job).stdout.decode().splitlines()
    assert sum("rank" in line for line in lines) == 240
    assert hw.json("q", job)["attempts"][0]["cause"] is None


def test_a_job_that_somebody_cancels_in_slurm_says_so_and_is_not_tried_again(
    hw: Hw, slurm: SlurmCluster
) -> None:
    running = hw.submit("-c", "lab", "--retry", "3", "sleep", "100")
    hw.wait_state(running, "running")
    slurm.command("scancel", hw.json("q", running)["engine_id"])
    ended = hw.wait_ended(running, timeout_s=90)
    assert ended["state"] == "stopped" and len(ended["attempts"]) == 1
    assert "Slurm: CANCELLED" in ended["attempts"][0]["cause"]["text"]


def test_an_abort_reaches_the_agents_of_both_nodes_who_end_their_ranks(hw: Hw) -> None:
    job = hw.submit("-c", "lab", "-n", "8", "sleep", "100")

    def running() -> int:
        tasks = [task for attempt in hw.json("q", job)["attempts"] for task in attempt["tasks"]]
        return sum(process["state"] == "running" for task in tasks for process in task["processes"])

    wait_until(lambda: running() == 8, 90, "all eight ranks")
    assert hw("abort", job).returncode == 0
    ended = hw.wait_ended(job, timeout_s=90)
    assert ended["state"] == "stopped" and ended["attempts"][0]["cause"]["cause"] == "cancelled"
    ends = [
        process["state"] for task in ended["attempts"][0]["tasks"] for process in task["processes"]
    ]
    assert ends == ["exited"] * 8


def test_a_program_on_a_node_has_a_terminal_where_it_is_asked_for(hw: Hw) -> None:
    program = "import sys; print(sys.stdout.isatty(), sys.stderr.isatty()); print('apart', file=sys.stderr)"
    job = hw.submit("-c", "lab", "--pty", sys.executable, "-c", program)
    assert hw.wait_ended(job, timeout_s=90)["state"] == "succeeded"
    assert hw("logs", job, "--stream", "stdout").stdout.split() == [b"True", b"True"]
    assert hw("logs", job, "--stream", "stderr").stdout.strip() == b"apart"


def test_a_job_that_ran_in_its_folder_goes_to_slurm_with_the_code_as_it_is_now(hw: Hw) -> None:
    (hw.cwd / "say.py").write_text("print('first')")
    job = hw.submit(sys.executable, "say.py")
    assert hw.wait_ended(job)["code"] is None
    (hw.cwd / "say.py").write_text("print('second')")
    again = str(hw.json("resubmit", job, "-c", "lab")["id"])
    (hw.cwd / "say.py").write_text("print('third')")
    ended = hw.wait_ended(again, timeout_s=90)
    assert ended["state"] == "succeeded" and ended["code"]
    assert hw("logs", again, "--stream", "stdout").stdout.strip() == b"second"


@pytest.mark.cap(48)
def test_folders_are_there_on_each_node_and_sent_when_the_job_is_aborted(
    hw: Hw, tmp_path: Path
) -> None:
    source, target = tmp_path / "there", tmp_path / "kept"
    source.mkdir()
    (source / "a").write_text("data")
    program = (
        "cat data/a; echo $RANK > output/$RANK; touch $HEADWAY_FOLDER_OUTPUT/begun-$RANK; sleep 100"
    )
    folders = {"data": {"from": str(source)}, "output": {"to": str(target)}}
    job = {
        "name": "carry",
        "command": ["sh", "-c", program],
        "nodes": 2,
        "processes": 2,
        "folders": folders,
    }
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    name = hw.submit("-c", "lab", "job.yaml")
    begun = hw.home / "checkouts"
    wait_until(lambda: len(list(begun.glob("*/output/begun-*"))) == 2, 60, "both ranks")
    hw("abort", name)
    found = hw.wait_ended(name, timeout_s=90)
    assert found["state"] == "stopped"
    assert {"0", "1"} <= {path.name for path in target.iterdir()}
    assert hw("logs", name, "--rank", "1", "--stream", "stdout").stdout == b"data"
