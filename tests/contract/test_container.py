"""Jobs in real containers, end to end: `hw`, the server, the agent inside, and what survives when
parts are killed.
"""

import json
import os
import shlex
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import container, container_image
from tests.driver import HW, Hw
from tests.waiting import wait_until

pytestmark = pytest.mark.cap(45, 51, 60)


@pytest.fixture
def hw(home: Path, tmp_path: Path, docker: list[str]) -> Iterator[Hw]:
    cwd = tmp_path / "work"
    cwd.mkdir()
    common = {"engine": "docker", "command": docker, "network": "none"}
    clusters = {
        "box": {**common, "image": container_image.PYTHON, "pass_env": ["PASSED"]},
        "bare": {**common, "image": container_image.BARE},
        "down": {**common, "command": [docker[0], "-H", "unix:///nowhere.sock"]},
    }
    (cwd / "headway.yaml").write_text(json.dumps({"clusters": clusters}))
    driver = Hw(home, cwd)
    yield driver
    driver("abort", "--state", "running,waiting", "--yes")
    container.wait_removed(docker, home)


def test_a_job_runs_inside_with_its_folder_metrics_and_environment(hw: Hw) -> None:
    code = (
        "import os, headway as hw; hw.log({'loss': 0.5}, step=3); open('made', 'w').write('x');"
        "print(os.environ.get('PASSED'), os.environ.get('LEFT_OUT'), os.environ['SET'])"
    )
    env = {"PASSED": "yes", "LEFT_OUT": "no"}
    done = hw("-c", "box", "run", "--env", "SET=it", "python3", "-c", code, env=env)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == "yes None it\n"
    assert (hw.cwd / "made").stat().st_uid == os.getuid()
    job = hw.json("ls")[0]
    assert hw.json("q", job["id"])["metrics"]["loss"] == 0.5
    assert job["cluster"] == "box" and job["engine"] == "docker"


def test_an_image_without_python_has_its_agent_outside(hw: Hw) -> None:
    done = hw("-c", "bare", "run", "sh", "-c", "echo in $PWD as ${RANK-none}; echo bad >&2; exit 3")
    assert done.returncode == 3
    assert done.stdout.decode() == f"in {hw.cwd} as none\n" and b"bad" in done.stderr


@pytest.mark.parametrize("killed", ["its program, which ignores the stop", "the engine's program"])
def test_what_a_killed_program_of_the_engine_ran_does_not_stay(
    hw: Hw, docker: list[str], killed: str
) -> None:
    """The agent is outside, and its process is `docker run`: killing that ends nothing."""
    script = "trap '' TERM INT; echo up; while true; do sleep 1; done"
    (hw.cwd / "job.yaml").write_text(json.dumps({"command": ["sh", "-c", script], "grace": "1s"}))
    job = hw.submit("-c", "bare", "job.yaml")
    wait_until(lambda: b"up" in hw("logs", job).stdout, what="the output")
    assert len(container.of_home(docker, hw.home, "--filter", "status=running")) == 1
    if killed == "the engine's program":
        os.kill(
            hw.json("q", job)["attempts"][-1]["tasks"][0]["processes"][0]["pid"], signal.SIGKILL
        )
        assert hw.wait_ended(job)["signal"] == 9
    else:
        assert hw("abort", job).returncode == 0
        assert hw.wait_ended(job)["state"] == "stopped"
    container.wait_removed(docker, hw.home)


def test_memory_that_ran_out_is_told(hw: Hw) -> None:
    job = hw.submit(
        "-c", "box", "--memory", "64MiB", "python3", "-c", "x = bytearray(1 << 28); print(len(x))"
    )
    found = hw.wait_ended(job)
    assert found["signal"] == 9 and found["attempts"][-1]["cause"]["cause"] == "host_oom"


def test_an_image_that_is_not_there_is_refused_with_the_nearest(hw: Hw) -> None:
    done = hw("-c", "box", "submit", "--image", "headway-test-pyton:1", "true")
    assert done.returncode == 1 and hw.json("ls") == []
    assert 'did you mean "headway-test-python:1"' in done.stderr.decode()


def test_a_dry_run_shows_what_the_engine_is_asked_for(hw: Hw, docker: list[str]) -> None:
    told = hw(
        "-c", "box", "submit", "--dry-run", "--memory", "64MiB", "--cpus", "1", "sleep", "1"
    ).stdout.decode()
    words = shlex.split(told.splitlines()[-1])
    assert words[: len(docker) + 2] == [*docker, "create", "--name"]
    assert " --cpus 1 --memory 67108864 " in shlex.join(words) and container_image.PYTHON in words
    assert hw.json("ls") == [] and container.of_home(docker, hw.home) == []


def test_a_running_job_tells_its_container_and_how_to_enter_it(hw: Hw, docker: list[str]) -> None:
    job = hw.submit("-c", "box", "sleep", "100")
    found = hw.wait_state(job, "running")
    words = found["attach"]
    at = words.index("exec")
    assert words[at : at + 3] == ["exec", "-it", found["engine_id"]]
    done = subprocess.run(
        [*HW, "shell", job],
        cwd=hw.cwd,
        env=hw.env,
        input="pwd; echo $HEADWAY_LOCAL_RANK\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{hw.cwd}\n0\n"
    page = hw("q", job).stdout.decode().replace(docker[0], "docker").replace(f"-H {docker[2]} ", "")
    assert f"docker exec -it {found['engine_id']} sh" in page


def test_a_killed_server_finds_its_containers_again(hw: Hw) -> None:
    """F23, P10: also without the project's file, since the definition came with the job."""
    job = hw.submit(
        "-c",
        "box",
        "sh",
        "-c",
        "echo before; while [ ! -e go ]; do sleep 0.1; done; echo after; exit 5",
    )
    hw.wait_state(job, "running")
    os.kill(hw.json("server", "status")["pid"], signal.SIGKILL)
    (hw.cwd / "headway.yaml").rename(hw.cwd / "gone.yaml")
    assert hw.json("q", job)["state"] == "running"
    (hw.cwd / "go").touch()
    assert hw.wait_ended(job)["exit_code"] == 5
    assert hw("logs", job, "--rank", "0", "--stream", "stdout").stdout == b"before\nafter\n"
    (hw.cwd / "gone.yaml").rename(hw.cwd / "headway.yaml")


def test_the_output_of_a_killed_container_is_kept(hw: Hw, docker: list[str]) -> None:
    job = hw.submit("-c", "box", "sh", "-c", "echo said; sleep 100")
    hw.wait_state(job, "running")
    wait_until(lambda: b"said" in hw("logs", job).stdout, what="the output")
    subprocess.run(
        [*docker, "kill", *container.of_home(docker, hw.home)], check=True, capture_output=True
    )
    found = hw.wait_ended(job)
    assert (found["state"], found["exit_code"]) == ("failed", None)
    assert found["attempts"][-1]["cause"]["cause"] == "sigkill_unexplained"
    assert "ended from outside: exited with 137" in found["attempts"][-1]["cause"]["text"]


def test_clusters_are_listed_and_one_that_is_down_says_why(hw: Hw) -> None:
    rows = {row["name"]: row for row in hw.json("clusters")}
    assert (
        set(rows) == {"here", "box", "bare", "down"}
        and rows["box"]["reachable"]
        and rows["here"]["default"]
    )
    assert "does not reach its engine" in rows["down"]["error"]
    assert rows["box"]["total"] == rows["here"]["total"]
    assert "down: " in hw("clusters", "-v").stdout.decode()


def test_auto_takes_one_that_fits_and_says_why(hw: Hw) -> None:
    done = hw("-c", "auto", "run", "true")
    assert (
        done.returncode == 0
        and b"-c auto takes here: " in done.stderr
        and b"not down: " in done.stderr
    )
    assert hw.json("ls")[0]["cluster"] == "here"
    done = hw("-c", "auto", "submit", "--cpus", "9999", "true")
    assert done.returncode == 1 and b"no cluster can take this job" in done.stderr


def test_a_check_runs_a_tiny_job_and_reads_it_back(hw: Hw) -> None:
    done = hw("clusters", "check", "box")
    assert (
        done.returncode == 0 and b"headway-check on " in done.stdout and b"box works" in done.stderr
    )
    assert hw("clusters", "check", "down").returncode == 1


def test_a_job_file_is_simulated_with_what_is_left_out_said(hw: Hw) -> None:
    """Capability 45."""
    text = (
        "command: [sh, -c, 'echo $SLURM_JOB_ID lr {{ lr }} of $WORLD_SIZE $MINE $NOT_MINE']\nparameters: {lr: 0.1}\n"
        f"gpus: 8\nmemory: 900GiB\ncluster: lab\nimage: {container_image.PYTHON}\nenv: {{MINE: x}}\n"
    )
    (hw.cwd / "job.yaml").write_text(text)
    done = hw("simulate", "--set", "lr=0.5", "job.yaml", env={"NOT_MINE": "y"})
    assert (done.returncode, done.stdout) == (0, b"lr 0.5 of 1 x\n"), done.stderr.decode()
    for words in (
        b"memory 900",
        b"8 processes (1 here",
        b"SLURM_JOB_ID is set by a scheduler only",
    ):
        assert words in done.stderr
    assert hw.json("ls")[0]["cluster"] == "simulation"


def test_one_role_alone_is_simulated(hw: Hw) -> None:
    roles = {
        "ps": {"command": "sh -c 'echo ps'", "completion": "none"},
        "worker": {"command": "false"},
    }
    (hw.cwd / "job.yaml").write_text(json.dumps({"roles": roles, "image": container_image.PYTHON}))
    done = hw("simulate", "--role", "ps", "job.yaml")
    assert (done.returncode, done.stdout) == (0, b"ps\n"), done.stderr.decode()
    done = hw("simulate", "--role", "wrker", "job.yaml")
    assert done.returncode == 2 and b'did you mean "worker"' in done.stderr


def test_podman_runs_the_same_job(home: Path, tmp_path: Path, podman: list[str]) -> None:
    box = {
        "engine": "podman",
        "command": podman,
        "image": f"localhost/{container_image.PYTHON}",
        "network": "none",
    }
    (tmp_path / "headway.yaml").write_text(
        json.dumps({"clusters": {"pod": {**box, "run_options": container.PODMAN_OPTIONS}}})
    )
    hw = Hw(home, tmp_path)
    done = hw("-c", "pod", "run", "sh", "-c", "echo hello; exit 4")
    assert (done.returncode, done.stdout) == (4, b"hello\n"), done.stderr.decode()
    container.wait_removed(podman, home)


@pytest.mark.cap(48)
@pytest.mark.parametrize("cluster", ["box", "bare"])
def test_folders_are_brought_into_a_container_and_sent_from_it(
    hw: Hw, tmp_path: Path, cluster: str
) -> None:
    source, copied, target = (tmp_path / name for name in ("there", "copied", "kept"))
    for folder in (source, copied):
        folder.mkdir()
        (folder / "a").write_text(folder.name)
    folders = {
        "data": {"from": str(source), "mode": "ro"},
        "work": {"from": str(copied), "to": str(target)},
    }
    program = "cat data/a $HEADWAY_FOLDER_WORK/a; echo new > work/b; echo x > data/a"
    (hw.cwd / "job.yaml").write_text(
        json.dumps({"command": ["sh", "-c", program], "folders": folders})
    )
    done = hw("-c", cluster, "run", "job.yaml")
    assert done.stdout.decode() == "therecopied" and b"Read-only" in done.stderr, (
        done.stderr.decode()
    )
    assert done.returncode != 0 and (source / "a").read_text() == "there"
    assert [path.name for path in target.iterdir()] == ["b"]


@pytest.mark.cap(48)
def test_data_from_storage_is_fetched_beside_the_container_that_has_no_network(
    hw: Hw, s3: int
) -> None:
    address, bucket = f"http://127.0.0.1:{s3}", f"c{os.urandom(4).hex()}"
    urllib.request.urlopen(urllib.request.Request(f"{address}/{bucket}", method="PUT")).close()
    settings = json.loads((hw.cwd / "headway.yaml").read_text())
    account = {"kind": "s3", "endpoint": address, "key_id": "LAB_ID", "secret": "LAB_SECRET"}
    (hw.cwd / "headway.yaml").write_text(json.dumps({**settings, "accounts": {"lab": account}}))
    hw.env |= {"LAB_ID": "testing", "LAB_SECRET": "testing-secret"}
    (hw.cwd / "a.txt").write_text("data")
    assert hw("storage", "upload", "a.txt", f"s3://{bucket}/data/").returncode == 0
    folders = {
        "data": {"from": f"s3://{bucket}/data", "mode": "ro"},
        "out": {"to": f"s3://{bucket}/out"},
    }
    program = "cat data/a.txt; echo made > out/b; env | grep -c testing-secret"
    (hw.cwd / "job.yaml").write_text(
        json.dumps({"command": ["sh", "-c", program], "folders": folders})
    )
    done = hw("-c", "box", "run", "job.yaml")
    assert done.stdout.decode() == "data0\n", done.stderr.decode()
    assert [row["name"] for row in hw.json("storage", "ls", f"s3://{bucket}/out")] == ["b"]


PTY = "import os, sys; print(sys.stdout.isatty(), sys.stderr.isatty(), os.get_terminal_size(1), repr(sys.stdin.read()))"


def test_a_program_in_a_container_has_terminals_of_its_own(hw: Hw) -> None:
    done = hw(
        "-c",
        "box",
        "run",
        "--pty",
        "python3",
        "-c",
        f"{PTY}; sys.stderr.write('apart\\n'); sys.exit(3)",
    )
    size = "os.terminal_size(columns=80, lines=24)"
    assert (done.returncode, done.stdout.decode()) == (3, f"True True {size} ''\n"), (
        done.stderr.decode()
    )
    assert b"apart\n" in done.stderr


def test_a_program_in_an_image_without_python_has_a_terminal(hw: Hw) -> None:
    """Docker tells its size some moments after the start."""
    sized = 'until [ "$(busybox stty size <&2 2> /dev/null)" = "24 80" ]; do sleep 0.1; done'
    done = hw(
        "-c",
        "bare",
        "run",
        "--pty",
        "sh",
        "-c",
        f"[ -t 1 ] && [ -t 2 ] && echo both; {sized}; exit 3",
    )
    assert (done.returncode, done.stdout) == (3, b"both\r\n"), done.stderr.decode()


def test_ctrl_c_reaches_a_program_with_a_terminal_in_a_container(hw: Hw) -> None:
    program = "import time, sys\ntry:\n print('up', flush=True); time.sleep(60)\nexcept KeyboardInterrupt:\n sys.exit(5)"
    child = hw.start("-c", "box", "run", "--pty", "python3", "-c", program)
    assert child.stdout is not None and child.stdout.readline() == b"up\n"
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    job = hw.json("ls")[0]
    assert (child.returncode, job["state"], job["exit_code"]) == (5, "stopped", 5)
