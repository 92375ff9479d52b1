"""A real sshd on loopback with keys of its own, for tests and for trying by hand. It changes
nothing of the system.

    python -m tests.rigs.sshd_rig FOLDER     # until Ctrl-C; prints a PATH whose `ssh` knows the host `login`

Debian's package openssh-server is enough. `bin/ssh` in the folder is the system's ssh with a config
of ours, in place of what a person would have in ~/.ssh/config.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from headway.testing.port import reserve

HOST = "login"
START_TIMEOUT_S = 20.0
_SBIN = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
_SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {d}/host_key
PidFile {d}/sshd.pid
AuthorizedKeysFile {d}/key.pub
PasswordAuthentication no
UsePAM no
StrictModes no
PermitRootLogin yes
PrintMotd no
{setenv}
"""
_CLIENT = """\
Host {host}
  HostName 127.0.0.1
  Port {port}
  IdentityFile {d}/key
  IdentitiesOnly yes
  UserKnownHostsFile {d}/known_hosts
  StrictHostKeyChecking yes
"""


def missing() -> list[str]:
    """Programs that are not here."""
    return [
        name for name in ("sshd", "ssh", "ssh-keygen") if shutil.which(name, path=_SBIN) is None
    ]


class Sshd:
    """`env`: variables that sessions have, as a login node would. SLURM_CONF, for example."""

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self._child: subprocess.Popen[bytes] | None = None
        self.port = reserve()
        for name in ("key", "host_key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)],
                check=True,
                timeout=60,
            )
        setenv = " ".join(f'{name}="{value}"' for name, value in (env or {}).items())
        (folder / "sshd_config").write_text(
            _SERVER.format(d=folder, port=self.port, setenv=f"SetEnv {setenv}" if setenv else "")
        )
        (folder / "ssh_config").write_text(_CLIENT.format(d=folder, host=HOST, port=self.port))
        public = (folder / "host_key.pub").read_text()
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {public}")
        self.bin.mkdir()
        wrapper = self.bin / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
        wrapper.chmod(0o755)

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": f"{self.bin}:{os.environ.get('PATH', os.defpath)}"}

    def __enter__(self) -> "Sshd":
        self.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        program = shutil.which("sshd", path=_SBIN)
        if program is None:
            raise FileNotFoundError("no sshd here; type: sudo apt-get install openssh-server")
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        with (self.folder / "sshd.log").open("ab") as output:
            self._child = subprocess.Popen(
                [program, "-D", "-e", "-f", str(self.folder / "sshd_config")], stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, start_new_session=True,
            )  # fmt: skip
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if time.monotonic() > deadline_s or self._child.poll() is not None:
                raise TimeoutError(
                    f"sshd did not come up: {(self.folder / 'sshd.log').read_text()[-500:]}"
                )
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as probe:
                return probe.recv(4) == b"SSH-"
        except OSError:
            return False

    def stop(self) -> None:
        """The listener; sessions that are open go on, as with every sshd."""
        if self._child is not None:
            self._child.terminate()
            self._child.wait(10)
            self._child = None

    def sessions(self) -> list[int]:
        """Pids of processes of open sessions: children of the listener."""
        if self._child is None:
            return []
        done = subprocess.run(
            ["pgrep", "-P", str(self._child.pid)], capture_output=True, text=True, check=False
        )
        return [int(word) for word in done.stdout.split()]


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    folder = Path(sys.argv[1]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: os.environ[name] for name in ("SLURM_CONF",) if name in os.environ}
    with Sshd(folder, kept) as server:
        sys.stdout.write(f"export PATH={server.bin}:$PATH\n")
        sys.stdout.flush()
        try:
            signal.pause()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
