"""Slurm's commands hang, fail, print garbage, and lose answers, in front of a real Slurm (F22, F23,
F24).
"""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.driver import Hw
from tests.rigs.slurm_rig import SlurmCluster
from tests.waiting import wait_until

READ = ("sbatch", "squeue", "scontrol", "sacct")  # what they print is read
COMMANDS = (*READ, "scancel", "srun")
WRAPPER = """#!/bin/sh
how() {{ cat {modes}/{name} 2> /dev/null; }}
while [ "$(how)" = hang ]; do sleep 0.1; done
case "$(how) $*" in "lose "*--test-only* | "kill "*--test-only*) exec {real} "$@" ;; esac  # it submits nothing
case "$(how)" in
fail) echo '{name}: error: something of its own' >&2; exit 1 ;;
garbage) echo '<html>502 Bad Gateway</html>'; exit 0 ;;
lose) {real} "$@" > /dev/null; rm {modes}/{name}; echo '{name}: error: Socket timed out' >&2; exit 1 ;;
kill) {real} "$@" > /dev/null; rm {modes}/{name}; kill -9 "$PPID"; exit 1 ;;
esac
exec {real} "$@"
"""


class Lab:
    """`hw` before a Slurm whose commands can be told how to behave."""

    def __init__(self, hw: Hw, slurm: SlurmCluster, folder: Path) -> None:
        self.hw, self.slurm, self._modes = hw, slurm, folder / "modes"
        self._modes.mkdir()
        tools = folder / "tools"
        tools.mkdir()
        for name in COMMANDS:
            path = tools / name
            path.write_text(WRAPPER.format(name=name, modes=self._modes, real=shutil.which(name)))
            path.chmod(0o755)
        hw.env |= slurm.env | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}

    def behave(self, how: str, *names: str) -> None:
        """hang, fail, garbage; lose or kill: once, after the command was done."""
        for name in names or COMMANDS:
            (self._modes / name).write_text(how)

    def recover(self) -> None:
        for name in COMMANDS:
            (self._modes / name).unlink(missing_ok=True)

    def submit(self, *words: str) -> str:
        return self.hw.submit("-c", "lab", *words, sys.executable, "train.py")

    def batch_jobs(self, job: str) -> list[str]:
        """Slurm's numbers of all that was ever submitted for a job."""
        uuid = self.hw.json("q", job)["uuid"]
        said = self.slurm.command("squeue", "-h", "-t", "all", "-o", "%A %k").stdout
        return [line.split()[0] for line in said.splitlines() if f"headway:{uuid}-" in line]


@pytest.fixture
def lab(home: Path, tmp_path: Path, slurm: SlurmCluster) -> Iterator[Lab]:
    work = tmp_path / "work"
    work.mkdir()
    (work / "headway.yaml").write_text("clusters: {lab: {engine: slurm, partition: main}}\n")
    (work / "train.py").write_text(
        "import os, time\nn = 0\n"
        "while os.environ.get('UNTIL') and not os.path.exists(os.environ['UNTIL']):\n"
        "    print('step', n, flush=True); n += 1; time.sleep(0.1)\nprint('done', n)\n"
    )
    made = Lab(Hw(home, work), slurm, tmp_path)
    yield made
    made.recover()
    made.hw("abort", "--state", "waiting,running", "--yes")
    wait_until(
        lambda: not made.hw.json("ls", "--state", "waiting,running,stopping"),
        60,
        "the end of all jobs",
    )
    made.hw("server", "stop")


def output(lab: Lab, job: str) -> list[str]:
    return lab.hw("logs", job, "--stream", "stdout").stdout.decode().splitlines()


@pytest.mark.parametrize("how", ["hang", "garbage", "fail"])
def test_while_slurms_commands_misbehave_jobs_keep_their_state_and_others_go_on(
    lab: Lab, how: str
) -> None:
    ends, goes_on = (
        lab.submit("--env", f"UNTIL={lab.hw.cwd / name}") for name in ("ends", "never")
    )
    for job in (ends, goes_on):
        lab.hw.wait_state(job, "running")
    lab.behave(how, *(READ if how == "garbage" else COMMANDS))
    waits = [lab.submit() for _ in range(3)]
    # here, beside a Slurm that is away
    assert lab.hw.wait_ended(lab.hw.submit("true"))["state"] == "succeeded"
    (lab.hw.cwd / "ends").touch()
    assert lab.hw.wait_ended(ends)["state"] == "succeeded"  # its agent tells that
    states = [lab.hw.json("q", job)["state"] for job in (goes_on, *waits)]
    assert states == ["running", "waiting", "waiting", "waiting"]
    assert lab.hw("abort", goes_on).returncode == 0  # its agent is asked, too
    stopped = lab.hw.wait_ended(goes_on)
    assert stopped["state"] == "stopped" and output(lab, goes_on)[-1].startswith("step")
    lab.recover()
    assert [lab.hw.wait_ended(job)["state"] for job in waits] == ["succeeded"] * 3
    assert [len(lab.batch_jobs(job)) for job in waits] == [1, 1, 1]


@pytest.mark.parametrize("how", ["lose", "kill"])
def test_an_answer_of_sbatch_that_is_lost_is_found_and_there_is_one_job(lab: Lab, how: str) -> None:
    """F24; `kill`: the server is killed between sbatch and its own commit (F23)."""
    lab.hw.json("ls")
    pid = lab.hw.server_pid()
    lab.behave(how, "sbatch")
    job = lab.submit()
    ended = lab.hw.wait_ended(job)
    assert ended["state"] == "succeeded" and len(ended["attempts"]) == 1
    assert lab.batch_jobs(job) == [ended["engine_id"]]
    assert output(lab, job) == ["done 0"]
    assert (lab.hw.server_pid() == pid) == (how == "lose")
