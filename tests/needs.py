"""What a test needs from the machine. A missing tool skips it with one clear line, and fails it
when CI=true.

What a kernel or a container forbids cannot be installed, so that skips everywhere; pytest's summary
tells it.
"""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

TORCH = "2.13"  # as in tools/torch.sh


def missing(reason: str) -> None:
    """Skip the calling test, or fail it in continuous integration, where nothing may be missing."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def tool(name: str, package: str) -> str:
    """The path of a program."""
    return program(name, f"sudo apt-get install {package}")


def program(name: str, install: str) -> str:
    """The path of a program that `install` brings, or tools/need.sh into an environment of its own."""
    own = [str(folder / "bin") for folder in _cache().glob("*") if (folder / ".installed").exists()]
    path = shutil.which(name) or shutil.which(name, path=os.pathsep.join(own))
    if path is None:
        missing(f"no {name} here; type: {install}")
    return path or name


@cache
def _refusal(*command: str) -> str | None:
    """Why the machine does not let us do this; None when it does."""
    done = subprocess.run(command, capture_output=True, text=True)
    return None if done.returncode == 0 else done.stderr.strip()[:200]


def allowed(what: str, *command: str) -> None:
    reason = _refusal(*command)
    if reason is not None:
        pytest.skip(f"{what} not allowed on this machine: {reason}")


def strace() -> str:
    """The path of a strace that works."""
    path = tool("strace", "strace")
    allowed("tracing is", path, "-o", "/dev/null", "true")
    return path


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headway-tests"


def torch_python() -> str:
    """The Python of an environment of its own that has PyTorch: it is large, so a person makes it
    by one command.
    """
    path = _cache() / f"torch-{TORCH}" / "bin" / "python"
    if not (path.parent.parent / ".installed").exists():
        missing("no PyTorch for tests here; type: tools/torch.sh")
    return str(path)


def mount_namespace() -> None:
    """`unshare -rm` with a tmpfs inside works."""
    allowed(
        "mount namespaces are",
        tool("unshare", "util-linux"),
        "-rm",
        "mount",
        "-t",
        "tmpfs",
        "none",
        "/mnt",
    )
