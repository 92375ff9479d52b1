"""Runs a provoked failure and gives what it left as a case to be diagnosed."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.diagnose_cases import Case
from tests.needs import TORCH
from tests.provoke.failures import Failure

NOT_ALLOWED = 99  # exit code of one that could not be set up


def torch_python() -> str | None:
    """The interpreter that tools/torch.sh made."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = caches / "headway-tests" / f"torch-{TORCH}"
    return str(folder / "bin" / "python") if (folder / ".installed").exists() else None


def is_possible(failure: Failure) -> bool:
    if failure.needs == "torch":
        return torch_python() is not None
    if failure.needs == "mount":
        return os.getuid() == 0
    return not failure.needs or shutil.which(failure.needs) is not None


def provoke(failure: Failure) -> Case | None:
    """None where the machine does not allow it."""
    python = (torch_python() if failure.needs == "torch" else None) or sys.executable
    with tempfile.TemporaryDirectory(prefix="hw-provoke-") as folder:
        names = Path(folder) / "bin"
        names.mkdir()
        (names / "python").symlink_to(python)
        if failure.python:
            (Path(folder) / "train.py").write_text(failure.python)
            command = [python, "train.py"]
        else:
            command = ["bash", "-c", failure.shell]
        env = {
            "PATH": f"{Path(python).parent}:{names}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": folder,
            "LANG": "C.UTF-8",
        }
        with open(f"{folder}/stdout", "wb") as out, open(f"{folder}/stderr", "wb") as err:
            done = subprocess.run(
                command, cwd=folder, env=env, stdout=out, stderr=err, timeout=failure.seconds
            )
        if done.returncode == NOT_ALLOWED:
            return None
        streams = [
            (name, Path(folder, name).read_text(errors="replace")) for name in ("stdout", "stderr")
        ]
    code = done.returncode
    return Case(
        f"provoke/{failure.name}",
        failure.label,
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        rank=failure.rank,
        streams=streams,
    )
