"""The fixture `laptop`: a server that reaches a real Slurm by nothing but ssh to a real sshd.

Its PATH has none of Slurm's commands, and it lives in a mount namespace of its own, in which the
cluster's folder is empty. `hw` itself runs outside, and speaks with that server.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.driver import HW, Hw, alive
from tests.rigs.slurm_rig import SlurmCluster
from tests.rigs.sshd_rig import HOST, Sshd, missing
from tests.waiting import wait_until

_TOOLS = ("sh", "env", "git", "cat", "uname", "sleep", "ps", "true")


class Laptop(Hw):
    def __init__(self, home: Path, cwd: Path, sshd: Sshd, folder: Path) -> None:
        super().__init__(home, cwd)
        self.sshd, self.folder = sshd, folder
        tools = cwd.parent / f"{cwd.name}-bin"
        tools.mkdir()
        for name in _TOOLS:
            if found := shutil.which(name):
                (tools / name).symlink_to(found)
        self.env |= {"PATH": f"{sshd.bin}:{tools}"}
        cluster = f"{{engine: slurm, host: {HOST}, folder: {folder}, partition: main}}"
        (cwd / "headway.yaml").write_text(f"clusters: {{lab: {cluster}}}\n")

    def start_server(self) -> None:
        """Where nothing of the cluster is seen."""
        flags = "-m" if os.getuid() == 0 else "-rm"
        script = (
            'mount -t tmpfs none "$1" && test -z "$(ls "$1")" && PATH=$2 && shift 2 && exec "$@"'
        )
        words = [
            "unshare",
            flags,
            "sh",
            "-c",
            script,
            "laptop",
            str(self.folder),
            self.env["PATH"],
            *HW,
        ]
        env = self.env | {"PATH": f"{self.env['PATH']}:/usr/bin:/bin"}
        done = subprocess.run(
            [*words, "server", "start"], cwd=self.cwd, env=env, capture_output=True, timeout=60
        )
        assert done.returncode == 0, done.stderr.decode()

    def processes(self, name: str) -> list[int]:
        """Pids of `ssh` or `hw-relay` that serve this server."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                words = (path / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            ours = any(str(self.folder).encode() in word for word in words)
            if ours and (name.encode() in words[0] or name.encode() in words):
                found.append(int(path.name))
        return [pid for pid in found if alive(pid)]

    def kill(self, name: str) -> None:
        for pid in self.processes(name):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def laptop(home: Path, tmp_path: Path, slurm: SlurmCluster) -> Iterator[Laptop]:
    if lacking := missing():
        needs.missing(f"no {lacking[0]} here; type: sudo apt-get install openssh-server")
    needs.mount_namespace()
    folder = Path(tempfile.mkdtemp(prefix="hw-far-", dir="/tmp"))
    keys = Path(tempfile.mkdtemp(prefix="hw-ssh-", dir="/tmp"))
    try:
        with Sshd(keys, slurm.env) as sshd:
            driver = Laptop(home, tmp_path, sshd, folder)
            driver.start_server()
            yield driver
            driver("abort", "--state", "waiting,running", "--yes")
            wait_until(
                lambda: not driver.json("ls", "--state", "waiting,running,stopping"),
                60,
                "the end of all jobs",
            )
            driver("server", "stop")
            wait_until(lambda: not driver.processes("relay"), what="the end of the relay")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(keys, ignore_errors=True)
