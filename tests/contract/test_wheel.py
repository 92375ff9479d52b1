"""The file that `make wheel` makes, in an empty environment: a working `hw` without a clone."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).parent / "uv"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make wheel` builds it, into a folder of our own. Everything that the build needs is
    locked.
    """
    out = tmp_path_factory.mktemp("dist")
    command = [
        UV,
        "build",
        "-q",
        "--wheel",
        "--no-build-isolation",
        "--offline",
        "--python",
        sys.executable,
        "-o",
        out,
    ]
    done = subprocess.run([*map(str, command), str(ROOT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (found,) = out.glob("headway-*.whl")
    return found


@pytest.fixture(scope="module")
def hw(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`hw` of a new environment that holds the wheel and its locked dependencies, and nothing else."""
    venv = tmp_path_factory.mktemp("venv") / "v"
    lock = ROOT / "requirements" / "dev.txt"
    for command in (
        [UV, "venv", "-q", "--python", sys.executable, venv],
        [
            UV,
            "pip",
            "install",
            "-q",
            "--python",
            venv / "bin" / "python",
            "--constraints",
            lock,
            wheel,
        ],
    ):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return venv / "bin" / "hw"


def run(hw: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Without anything of the clone in the environment, and from outside of it."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    return subprocess.run(
        [str(hw), *words], cwd=home.parent, env=env, capture_output=True, text=True, timeout=60
    )


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"headway"}
    for needed in (
        "headway/py.typed",
        "headway/store/migrations/0001_first.sql",
        "headway/views/cli/main.py",
    ):
        assert needed in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_an_installed_wheel_knows_its_version(hw: Path, home: Path) -> None:
    done = run(hw, home, "--version")
    assert (done.returncode, done.stdout) == (0, "hw 0.1.0\n"), done.stderr


def test_an_installed_wheel_runs_a_job(hw: Path, home: Path) -> None:
    python = str(hw.parent / "python")
    code = "import headway; headway.log({'loss': 0.5}, step=1); print('from the job')"
    done = run(hw, home, "run", "--name", "tiny", python, "-c", code)
    assert done.returncode == 0, done.stderr
    assert "from the job" in done.stdout
    (job,) = json.loads(run(hw, home, "ls", "--json").stdout)
    assert (job["name"], job["state"]) == ("tiny", "succeeded")
    found = json.loads(run(hw, home, "q", job["id"], "--json").stdout)
    assert found["metrics"]["loss"] == 0.5
