"""What a test needs from the machine. Missing: skipped with one clear line; with CI=true it fails instead."""

import os
import shutil
import subprocess
from functools import cache

import pytest


def missing(reason: str) -> None:
    """Skip the calling test, or fail it in continuous integration, where nothing may be missing."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@cache
def _why_no_strace() -> str | None:
    path = shutil.which("strace")
    if path is None:
        return "no strace here; type: sudo apt-get install strace"
    done = subprocess.run([path, "-o", "/dev/null", "true"], capture_output=True, text=True)
    return None if done.returncode == 0 else f"strace may not trace here: {done.stderr.strip()[:200]}"


@cache
def _why_no_mount_namespace() -> str | None:
    if shutil.which("unshare") is None:
        return "no unshare here; type: sudo apt-get install util-linux"
    done = subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True)
    return None if done.returncode == 0 else f"no mount namespaces here: {done.stderr.strip()[:200]}"


def strace() -> str:
    """The path of a strace that works."""
    reason = _why_no_strace()
    if reason:
        missing(reason)
    return shutil.which("strace") or "strace"


def mount_namespace() -> None:
    """`unshare -rm` with a tmpfs inside works."""
    reason = _why_no_mount_namespace()
    if reason:
        missing(reason)
