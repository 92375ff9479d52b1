"""`hw init`, `hw code` and `--snapshot` as a person uses them: a job runs the code as it was
submitted.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests import needs
from tests.driver import PYTHON, Hw
from tests.waiting import wait_until

TRAIN = """
import pathlib, sys, time
go = pathlib.Path(sys.argv[1])
while not go.exists():
    time.sleep(0.02)
print(pathlib.Path("lib.txt").read_text(), pathlib.Path.cwd().name)
if len(sys.argv) > 2:
    pathlib.Path(sys.argv[2]).write_text("made")
"""


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    folder = tmp_path / "project"
    folder.mkdir()
    return Hw(home, folder)


@pytest.fixture
def project(hw: Hw) -> Path:
    needs.tool("git", "git")
    root = hw.cwd
    (root / "sub").mkdir()
    (root / "sub/lib.txt").write_text("first")
    (root / "sub/train.py").write_text(TRAIN)
    (root / ".gitignore").write_text("data/\n")
    (root / ".env").write_text("KEY=1")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    hw.cwd = root / "sub"
    return root


def checkouts(hw: Hw) -> list[str]:
    folder = hw.home / "checkouts"
    return [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []


@pytest.mark.cap(47)
def test_a_queued_job_runs_the_code_as_it_was_submitted(
    hw: Hw, project: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    job = hw.submit("--snapshot", PYTHON, "train.py", str(go))
    (project / "sub/lib.txt").write_text("second")
    (project / "sub/train.py").write_text("raise SystemExit(3)")
    again = hw.submit("--snapshot", PYTHON, "train.py", str(go))
    go.touch()
    assert hw.wait_ended(job)["state"] == "succeeded" and hw.wait_ended(again)["exit_code"] == 3
    assert hw("logs", job, "--stream", "stdout", "--rank", "0").stdout == b"first sub\n"
    digest = hw.json("q", job)["code"]
    assert (
        digest != hw.json("q", again)["code"]
        and f"snapshot {digest[:12]}" in hw("q", job).stdout.decode()
    )
    wait_until(lambda: checkouts(hw) == [], what="unchanged checkouts gone")
    assert hw("code", job, str(tmp_path / "old")).returncode == 0
    assert (tmp_path / "old/sub/lib.txt").read_text() == "first" and not (
        tmp_path / "old/.env"
    ).exists()
    assert hw("code", job, str(tmp_path / "old")).returncode == 1
    assert b"cannot be written" in hw("code", job, "/proc/old").stderr


@pytest.mark.cap(47)
def test_what_a_job_wrote_beside_its_code_stays_until_the_job_goes(
    hw: Hw, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "go").touch()
    done = hw("run", "--json", "--snapshot", PYTHON, "train.py", str(tmp_path / "go"), "model.pt")
    assert done.returncode == 0, done.stderr.decode()
    assert b".env" in done.stderr and b"secrets" in done.stderr
    job = json.loads(done.stdout)
    assert not (project / "sub/model.pt").exists()
    assert (hw.home / "checkouts" / job["uuid"] / "sub/model.pt").read_text() == "made"
    assert hw("gc").returncode == 0 and checkouts(hw) == [job["uuid"]]
    assert hw("delete", job["id"], "--yes").returncode == 0 and hw("gc").returncode == 0
    assert checkouts(hw) == []


@pytest.mark.cap(47)
def test_init_says_what_is_in_a_snapshot_and_gc_keeps_what_jobs_need(
    hw: Hw, project: Path, tmp_path: Path
) -> None:
    made = hw.json("init")
    assert made["files"] == 3 and [row["path"] for row in made["left_out"]] == [".env"]
    assert b"left out: .env" in hw("init").stderr
    (tmp_path / "go").touch()
    job = hw.submit("--snapshot", PYTHON, "train.py", str(tmp_path / "go"))
    hw.wait_ended(job)
    (project / "sub/lib.txt").write_text("other")
    unused = hw.json("init")["code"]
    for digest in (made["code"], unused):
        os.utime(hw.home / "code/manifests" / digest, (1, 1))
    assert hw.json("gc")["snapshots"] == 1
    assert (
        not (hw.home / "code/manifests" / unused).exists()
        and hw("code", job, str(tmp_path / "x")).returncode == 0
    )


def test_a_job_whose_snapshot_is_damaged_says_so(hw: Hw, project: Path, tmp_path: Path) -> None:
    hw.json("init")
    for pack in (hw.home / "code/packs").iterdir():
        data = bytearray(pack.read_bytes())
        data[10] ^= 1
        pack.write_bytes(data)
    job = hw.submit("--snapshot", PYTHON, "train.py", str(tmp_path / "go"))
    found = hw.wait_ended(job)
    assert found["state"] == "failed" and found["exit_code"] == 126
    assert b"damaged" in hw("logs", job, "--stream", "stderr", "--rank", "0").stdout


@pytest.mark.parametrize("code", ["../../etc/passwd", "0" * 64, "x" * 64, 7])
def test_a_snapshot_that_is_not_here_is_refused_at_submit(hw: Hw, code: object) -> None:
    """No path of a caller reaches a file (Sec6): a digest is 64 hex digits or nothing."""
    from headway.model.job import JobSpec
    from headway.server.control import submit_check

    spec = JobSpec(["true"], str(hw.cwd), "x", code=code)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="snapshot"):
        submit_check.code(spec, hw.home)


@pytest.mark.parametrize("folder", ["..", "/etc", "a/../../b", "a//b", "x\0"])
def test_a_working_folder_outside_the_snapshot_is_refused(hw: Hw, folder: str) -> None:
    from headway.model.job import JobSpec
    from headway.server.control import submit_check

    with pytest.raises(Exception, match="not a folder inside"):
        submit_check.code(JobSpec(["true"], "/", "x", code="0" * 64, code_cwd=folder), hw.home)


def test_an_engine_that_would_run_in_place_is_refused() -> None:
    from headway.model.job import JobSpec
    from headway.server.control import submit_check

    spec = JobSpec(["true"], "/", "x", code="0" * 64)
    submit_check.carried(spec, "0" * 64, "local")
    with pytest.raises(Exception, match="cannot run a job from a snapshot"):
        submit_check.carried(spec, None, "slurm")
