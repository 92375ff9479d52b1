"""A job's Python is the user's: from 3.9 on everything works, an older one is left alone."""

import glob
import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.driver import Hw

ROOT = Path(__file__).resolve().parents[2]
HOME = pwd.getpwuid(os.getuid()).pw_dir  # a test has one of its own in its environment
FULL = ("3.9", "3.10", "3.12", "3.13", "3.14")
SILENT = ("2.7", "3.6", "3.7", "3.8")
SCRIPT = """\
import logging, sys
import headway as hw
hw.log({"loss": 0.5}, step=3)
with hw.Progress.new(2, "part") as progress:
    progress.advance(2)
logging.getLogger("own").warning("kept")
raise ValueError("boom")
"""
IMPORT_ALL = """\
import importlib, sys
from pathlib import Path
root = Path(sys.argv[1], "headway")
for part in ("client", "agent", "spool"):
    for path in sorted((root / part).rglob("*.py")):
        words = path.relative_to(root.parent).with_suffix("").parts
        if words[-1] not in ("sitecustomize", "__main__"):
            importlib.import_module(".".join(words).replace(".__init__", ""))
"""


def interpreter(version: str) -> str:
    """Of the PATH, or pyenv's; skips where this machine has none."""
    pyenv = sorted(glob.glob(f"{HOME}/.pyenv/versions/{version}.*/bin/python"))
    found = pyenv[-1] if pyenv else shutil.which(f"python{version}")
    if found is None or subprocess.run([found, "-c", ""], capture_output=True).returncode != 0:
        pytest.skip(f"no Python {version} here")
    return found


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    return Hw(home, tmp_path)


@pytest.mark.parametrize("version", FULL)
def test_client_and_bootstrap_work_in_the_jobs_python(hw: Hw, version: str) -> None:
    done = hw("run", interpreter(version), hw.script(SCRIPT))
    assert done.returncode == 1, done.stderr.decode()
    (job,) = hw.json("ls")
    found = hw.json("q", job["id"])
    assert found["metrics"]["loss"] == 0.5
    assert found["attempts"][-1]["cause"]["cause"] == "code_exception"
    assert [(one["msg"], one["completed"]) for one in found["progress"]] == [(["part"], 2)]
    assert b"kept" in hw("logs", job["id"], "--stream", "log").stdout


@pytest.mark.parametrize("version", SILENT)
def test_an_older_python_runs_as_without_us(hw: Hw, version: str) -> None:
    done = hw("run", interpreter(version), hw.script("import sys; print('ran'); sys.exit(3)"))
    assert (done.returncode, done.stdout) == (3, b"ran\n")
    assert b"sitecustomize" not in done.stderr and b"Error" not in done.stderr


@pytest.mark.parametrize("option", ["-I", "-S", "-E"])
def test_an_isolated_python_runs_as_without_us(hw: Hw, option: str) -> None:
    done = hw("run", interpreter("3.9"), option, hw.script("print('ran')"))
    assert (done.returncode, done.stdout) == (0, b"ran\n") and b"Error" not in done.stderr


def test_every_module_of_client_and_agent_loads_in_the_oldest_python(tmp_path: Path) -> None:
    script = tmp_path / "all.py"
    script.write_text(IMPORT_ALL)
    source = str(ROOT / "src")
    done = subprocess.run(
        [interpreter("3.9"), "-B", str(script), source],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
