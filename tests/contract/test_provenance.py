"""Capability 30: a job knows the commit, branch and uncommitted changes that it ran with, and on
what.
"""

import platform
import subprocess
from pathlib import Path

import pytest

from tests.driver import PYTHON, Hw
from tests.waiting import wait_until


def git(folder: Path, *words: str) -> str:
    who = (
        "-c",
        "user.name=somebody",
        "-c",
        "user.email=somebody@example.invalid",
        "-c",
        "init.defaultBranch=main",
    )
    return subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.mark.cap(30)
def test_hw_q_tells_commit_branch_changes_and_environment(home: Path, tmp_path: Path) -> None:
    hw = Hw(home, tmp_path)
    hw.script("print('hello')\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "train.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    (tmp_path / "train.py").write_text("print('changed')\n")
    job = hw.submit(PYTHON, "train.py")
    found = wait_until(lambda: (q := hw.json("q", job))["provenance"] and q, what="the provenance")[
        "provenance"
    ]
    assert (
        found["git"]["commit"] == git(tmp_path, "rev-parse", "HEAD")
        and found["git"]["branch"] == "main"
    )
    assert found["git"]["dirty"] is True and "+print('changed')" in found["git"]["diff"]
    assert platform.python_version().startswith(found["python"]) and "numpy" in found["packages"]
    page = hw("q", job).stdout.decode()
    assert found["git"]["commit"][:12] in page and "with uncommitted changes" in page
