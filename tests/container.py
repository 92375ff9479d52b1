"""Real container engines for tests: a Docker daemon of our own, and Podman, with images made of this machine's files.

A daemon needs root. Where it, or a program, is missing, the test is skipped with one line, and fails when CI=true.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import container_image, needs
from tests.waiting import wait_until

PODMAN = ["--storage-driver", "overlay", "--cgroup-manager", "cgroupfs", "--runtime", "runc"]
PODMAN_OPTIONS = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"]


@contextmanager
def docker() -> Iterator[list[str]]:
    """The words of a docker program whose daemon lives as long as this, with both images."""
    program, daemon = needs.tool("docker", "docker.io"), needs.tool("dockerd", "docker.io")
    busybox = needs.tool("busybox", "busybox-static")
    if os.getuid() != 0:
        pytest.skip("a Docker daemon of our own needs root")
    root = Path(tempfile.mkdtemp(prefix="hwd-"))
    log = (root / "log").open("wb")
    words = [daemon, "--data-root", f"{root}/data", "--exec-root", f"{root}/exec", "-p", f"{root}/pid"]
    words += ["-H", f"unix://{root}/sock", "--bridge=none", "--iptables=false", "--ip-forward=false"]
    plain = {"PATH": os.environ["PATH"]}  # nothing of the home of the test that happens to come first
    child = subprocess.Popen(
        [*words, "--oom-score-adjust=0"], stdout=log, stderr=log, env=plain, start_new_session=True
    )
    client = [program, "-H", f"unix://{root}/sock"]
    try:
        wait_until(lambda: child.poll() is not None or _answers(client), what="the Docker daemon")
        if child.poll() is not None:
            pytest.skip(f"this machine does not let a Docker daemon start: {(root / 'log').read_text()[-300:]}")
        for tag in (container_image.BARE, container_image.PYTHON):
            container_image.make(client, busybox, tag)
        yield client
    finally:
        child.terminate()
        child.wait(30)
        log.close()
        shutil.rmtree(root, ignore_errors=True)


def _answers(client: list[str]) -> bool:
    return subprocess.run([*client, "info"], capture_output=True, check=False).returncode == 0


@contextmanager
def podman() -> Iterator[list[str]]:
    """The words of a podman program with storage of its own."""
    program, busybox = needs.tool("podman", "podman"), needs.tool("busybox", "busybox-static")
    needs.tool("runc", "runc")
    root = Path(tempfile.mkdtemp(prefix="hwp-"))
    client = [program, "--root", f"{root}/root", "--runroot", f"{root}/run", *PODMAN]
    try:
        needs.allowed("containers are", *client, "info")
        container_image.make(client, busybox, container_image.PYTHON)
        yield client
    finally:
        subprocess.run([*client, "rm", "--all", "--force"], capture_output=True, check=False)
        subprocess.run(["umount", f"{root}/root/overlay"], capture_output=True, check=False)
        shutil.rmtree(root, ignore_errors=True)


def python_mounts() -> list[str]:
    """What a fake agent in a container needs of this checkout."""
    tests = Path(__file__).parent
    source = tests.parent / "src"
    return [f"{path}:{path}:ro" for path in (tests, source)]


PYTHON = os.path.realpath(sys.executable)
