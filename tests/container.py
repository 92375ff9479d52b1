"""Real container engines for tests: a Docker daemon of our own, and Podman, with images made of
this machine's files.

A daemon needs root. Where it, or a program, is missing, the test is skipped with one line, and
fails when CI=true.
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
LEFT_S = 150.0  # the server looks for what was left behind once in a minute


class Daemon:
    """A Docker daemon of our own, which may be ended and started again with the same containers."""

    def __init__(self, root: Path, *options: str) -> None:
        self._root, self._options = root, options
        self.client = [needs.tool("docker", "docker.io"), "-H", f"unix://{root}/sock"]
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        root = self._root
        words = [
            needs.tool("dockerd", "docker.io"),
            "--data-root",
            f"{root}/data",
            "--exec-root",
            f"{root}/exec",
        ]
        words += [
            "-p",
            f"{root}/pid",
            "-H",
            f"unix://{root}/sock",
            "--bridge=none",
            "--iptables=false",
        ]
        words += ["--ip-forward=false", "--oom-score-adjust=0", *self._options]
        # nothing of the home of the test that happens to come first
        plain = {"PATH": os.environ["PATH"]}
        with (root / "log").open("ab") as log:
            child = subprocess.Popen(
                words, stdout=log, stderr=log, env=plain, start_new_session=True
            )
        self._child = child
        wait_until(lambda: child.poll() is not None or self._answers(), what="the Docker daemon")
        if child.poll() is not None:
            pytest.skip(
                f"this machine does not let a Docker daemon start: {(root / 'log').read_text()[-300:]}"
            )

    def _answers(self) -> bool:
        return (
            subprocess.run([*self.client, "info"], capture_output=True, check=False).returncode == 0
        )

    def clear(self) -> None:
        """No container and no network, which is a bridge of this machine, may outlive the daemon's
        last day.
        """
        told = subprocess.run(
            [*self.client, "ps", "-aq"], capture_output=True, text=True, check=False
        ).stdout.split()
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


def of_home(program: list[str], home: Path, *options: str) -> list[str]:
    """Names of the containers of one home: a daemon is shared by tests, and what another has left
    is not ours.
    """
    words = [
        "ps",
        "--all",
        "--filter",
        f"label=headway.home={home}",
        *options,
        "--format",
        "{{.Names}}",
    ]
    return subprocess.run(
        [*program, *words], capture_output=True, text=True, check=True
    ).stdout.split()


def networks_of(program: list[str], home: Path) -> list[str]:
    words = ["network", "ls", "--filter", f"label=headway.home={home}", "--format", "{{.Name}}"]
    return subprocess.run(
        [*program, *words], capture_output=True, text=True, check=True
    ).stdout.split()


def wait_removed(program: list[str], home: Path) -> None:
    """All containers and networks of one home; what is still there is named, with what its engine
    says of it.
    """
    try:
        wait_until(lambda: not of_home(program, home), LEFT_S, "the removal of every container")
        wait_until(lambda: not networks_of(program, home), LEFT_S, "the removal of every network")
    except AssertionError as error:
        words = ["ps", "--all", "--filter", f"label=headway.home={home}"]
        told = subprocess.run(
            [*program, *words], capture_output=True, text=True, check=False
        ).stdout
        raise AssertionError(
            f"{error}\ncontainers: {told}\nnetworks: {networks_of(program, home)}"
        ) from None


def python_mounts() -> list[str]:
    """What a fake agent in a container needs of this checkout."""
    tests = Path(__file__).parent
    source = tests.parent / "src"
    return [f"{path}:{path}:ro" for path in (tests, source)]


PYTHON = os.path.realpath(sys.executable)
