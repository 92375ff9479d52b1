"""The commands that people know from earlier tools (init, submit, query, abort, resubmit, `-n 8`),
with `hw` in place of the old names: here and in containers.
"""

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import container, container_image
from tests.driver import HW, Hw

pytestmark = pytest.mark.cap(2, 3, 5, 6, 44, 47)

TRAIN = """
import os, sys
e = os.environ
print("rank", e.get("RANK", 0), "of", e.get("WORLD_SIZE", 1), *sys.argv[1:], e["NCCL_IB_DISABLE"])
"""


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    cwd = tmp_path / "work"
    cwd.mkdir()
    driver = Hw(home, cwd)
    driver.script(TRAIN)
    return driver


@pytest.fixture
def box(hw: Hw, docker: list[str]) -> Iterator[Hw]:
    box = {
        "engine": "docker",
        "command": docker,
        "image": container_image.PYTHON,
        "network": "none",
    }
    (hw.cwd / "headway.yaml").write_text(json.dumps({"clusters": {"box": box}}))
    yield hw
    hw("abort", "--state", "running,waiting,held", "--yes")
    container.wait_removed(docker, hw.home)


@pytest.fixture(params=["here", "box"])
def place(request: pytest.FixtureRequest, hw: Hw) -> str:
    if request.param == "box":
        request.getfixturevalue("box")
    return str(request.param)


def _submit(hw: Hw, *words: str) -> str:
    done = hw(*_with_json(words))
    assert done.returncode == 0, done.stderr.decode()
    return str(json.loads(done.stdout)["id"])


def _with_json(words: tuple[str, ...]) -> list[str]:
    """The option goes before the command's first word."""
    return [*words[: words.index("submit") + 1], "--json", *words[words.index("submit") + 1 :]]


def test_the_commands_of_the_seed_work(hw: Hw, place: str) -> None:
    on = ("-c", place, "--env", "NCCL_IB_DISABLE=0")
    done = hw("-c", place, "init")
    assert done.returncode == 0 and b"train.py" in done.stdout
    assert f"hw -c {place} submit --snapshot".encode() in done.stderr
    long = _submit(hw, *on, "submit", "sleep", "100")
    one = _submit(hw, *on, "submit", "python3", "train.py", "--data", "voc20")
    assert hw.wait_ended(one)["state"] == "succeeded"

    page = hw("q", one[-4:]).stdout.decode()
    assert "rank 0 of 1 --data voc20 0" in page and "succeeded" in page and "stdout-0" in page
    assert hw.json("query", one)["id"] == hw.json("q", one[-5:])["id"] == one
    assert hw("q", one[-4:], "--assets").returncode == 0
    (log,) = [path for path in (hw.cwd / "assets" / one).rglob("*stdout*") if path.is_file()]
    assert log.read_text() == "rank 0 of 1 --data voc20 0\n"

    assert hw("abort", long[-4:]).returncode == 0
    assert hw.wait_ended(long)["state"] == "stopped"

    eight = _submit(hw, *on, "-n", "8", "submit", "python3", "train.py", "--data", "voc20")
    assert hw.wait_ended(eight)["state"] == "succeeded"
    again = hw.json("resubmit", one[-4:])
    assert again["parent"] == one and hw.wait_ended(again["id"])["state"] == "succeeded"
    said = hw("logs", again["id"], "--rank", "0", "--stream", "stdout").stdout
    assert said == b"rank 0 of 1 --data voc20 0\n"  # with what was set for the old one
    ranks = [
        hw("logs", eight, "--rank", str(rank), "--stream", "stdout").stdout for rank in range(8)
    ]
    assert ranks == [b"rank %d of 8 --data voc20 0\n" % rank for rank in range(8)]


def test_a_job_moves_to_a_container_and_back_with_its_code_and_its_changes(box: Hw) -> None:
    (box.cwd / "version").write_text("one\n")
    script = "echo $A $B $MY_TOKEN; cat version; pwd"
    env = ("--env", "A=1", "--env", "MY_TOKEN=hunter22hunter22")
    first = box.submit("-c", "here", "--snapshot", *env, "sh", "-c", script)
    box.wait_ended(first)
    (box.cwd / "version").write_text("two\n")
    there = box.json("resubmit", first, "-c", "box", "--env", "B=2")["id"]
    box.wait_ended(there)
    back = box.json("resubmit", there, "-c", "here", "--snapshot", "-n", "2", "--env", "A=3")["id"]
    found = box.wait_ended(back)
    said = [
        box("logs", job, "--rank", "0", "--stream", "stdout").stdout.decode().split()
        for job in (there, back)
    ]
    assert [words[:-1] for words in said] == [["1", "2", "one"], ["3", "2", "two"]]
    assert found["processes"] == 2 and found["cluster"] == "here" and found["parent"] == there
    assert b"MY_TOKEN of" in box("q", there).stdout  # a secret is not kept, and that is told
    assert not any(b"hunter22" in path.read_bytes() for path in box.home.glob("headway.db*"))


def test_an_argument_alone_is_no_command(hw: Hw) -> None:
    job = hw.submit("true")
    done = hw("resubmit", job, "--", "--lr", "0.1")
    assert done.returncode == 2 and f"hw resubmit {job} -- true --lr 0.1".encode() in done.stderr


def test_a_trial_run_says_that_it_is_one(hw: Hw) -> None:
    (hw.cwd / "job.yaml").write_text("command: 'true'\nsmoke: {}\n")
    job = hw.submit("--smoke", "job.yaml")
    hw.wait_ended(job)
    assert hw.json("q", job)["smoke"] and hw.json("ls")[0]["smoke"]
    assert b"smoke" in hw("ls").stdout and b"1 process \xc2\xb7 smoke" in hw("q", job).stdout


def test_a_held_job_is_entered_in_its_container(box: Hw) -> None:
    """Capability 44: in its folder, with its environment."""
    job = box.submit(
        "-c",
        "box",
        "--hold",
        "10m",
        "--env",
        "WORD=hello",
        "sh",
        "-c",
        "echo broken > state; exit 3",
    )
    box.wait_state(job, "held")
    near, far = pty.openpty()
    shell = subprocess.Popen(
        [*HW, "shell", job], cwd=box.cwd, env=box.env, stdin=far, stdout=far, stderr=far
    )
    os.close(far)
    os.write(near, b'echo "<$WORD $HEADWAY_LOCAL_RANK $(cat state)>"; exit\n')
    said = b""
    while True:
        try:
            said += os.read(near, 4096)
        except OSError:  # it has ended
            break
    os.close(near)
    assert shell.wait(30) == 0 and b"<hello 0 broken>" in said
    assert box("release", job).returncode == 0
    assert box.wait_ended(job)["exit_code"] == 3
