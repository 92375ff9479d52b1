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


class Daemon:
    """A Docker daemon of our own, which may be ended and started again with the same containers."""

    def __init__(self, root: Path, *options: str) -> None:
        self._root, self._options = root, options
        self.client = [needs.tool("docker", "docker.io"), "-H", f"unix://{root}/sock"]
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        root = self._root
        words = [needs.tool("dockerd", "docker.io"), "--data-root", f"{root}/data", "--exec-root", f"{root}/exec"]
        words += ["-p", f"{root}/pid", "-H", f"unix://{root}/sock", "--bridge=none", "--iptables=false"]
        words += ["--ip-forward=false", "--oom-score-adjust=0", *self._options]
        plain = {"PATH": os.environ["PATH"]}  # nothing of the home of the test that happens to come first
        with (root / "log").open("ab") as log:
            child = subprocess.Popen(words, stdout=log, stderr=log, env=plain, start_new_session=True)
        self._child = child
        wait_until(lambda: child.poll() is not None or self._answers(), what="the Docker daemon")
        if child.poll() is not None:
            pytest.skip(f"this machine does not let a Docker daemon start: {(root / 'log').read_text()[-300:]}")

    def _answers(self) -> bool:
        return subprocess.run([*self.client, "info"], capture_output=True, check=False).returncode == 0

    def clear(self) -> None:
        """No container and no network, which is a bridge of this machine, may outlive the daemon's last day."""
        told = subprocess.run([*self.client, "ps", "-aq"], capture_output=True, text=True, check=False).stdout.split()
        if told:
            subprocess.run([*self.client, "rm", "-f", *told], capture_output=True, check=False)
        subprocess.run([*self.client, "network", "prune", "-f"], capture_output=True, check=False)

    def stop(self) -> None:
        if self._child is not None:
            self._child.terminate()
            self._child.wait(30)
            self._child = None


@contextmanager
def daemon(*options: str) -> Iterator[Daemon]:
    """One with both images."""
    busybox = needs.tool("busybox", "busybox-static")
    if os.getuid() != 0:
        pytest.skip("a Docker daemon of our own needs root")
    root = Path(tempfile.mkdtemp(prefix="hwd-"))
    made = Daemon(root, *options)
    try:
        made.start()
        for tag in (container_image.BARE, container_image.PYTHON):
            container_image.make(made.client, busybox, tag)
        yield made
    finally:
        made.clear()
        made.stop()
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def docker() -> Iterator[list[str]]:
    """The words of a docker program whose daemon lives as long as this, with both images."""
    with daemon() as made:
        yield made.client


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
