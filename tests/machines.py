"""Two "machines" for tests of the monitor: homes of their own, on loopback or each in its own
network namespace.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import needs
from tests.driver import HW, Hw


class Machine(Hw):
    """`hw` on one machine: its own home, and what it starts is in its own network."""

    def __init__(self, home: Path, cwd: Path, namespace: str = "") -> None:
        for folder in (home, cwd):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        super().__init__(home, cwd)
        self.namespace = namespace

    def argv(self, *words: str) -> list[str]:
        before = ["ip", "netns", "exec", self.namespace] if self.namespace else []
        return [*before, *HW, *words]

    def __call__(
        self,
        *words: str,
        timeout_s: float = 60.0,
        env: dict[str, str] | None = None,
        stdin: str = "",
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.argv(*words), cwd=self.cwd, env=self.env | (env or {}), capture_output=True, timeout=timeout_s,
            input=stdin.encode(),
        )  # fmt: skip

    # -- the monitor

    def listen(self, address: str) -> dict[str, Any]:
        found: dict[str, Any] = self.json("monitor", "--address", address)
        return found

    def token(self, name: str, role: str = "ingest") -> str:
        return str(self.json("token", "create", "--name", name, "--role", role)["token"])

    def join(self, address: str, pin: str, token: str) -> None:
        done = self("monitor", "join", address, "--pin", pin, stdin=token)
        assert done.returncode == 0, done.stderr.decode()

    def sending(self) -> dict[str, Any]:
        """What this machine's server says of the one monitor that it sends to."""
        rows = self.json("monitor", "status")["monitors"]
        return rows[0] if rows else {}

    def lines(self, job: str, *more: str) -> list[str]:
        done = self(*more, "logs", job, "--rank", "0", "--stream", "stdout")
        return done.stdout.decode().splitlines() if done.returncode == 0 else []


def stop_all(*machines: Machine) -> None:
    for machine in machines:
        machine("server", "stop")


class Link:
    """Two network namespaces with one cable between them."""

    HOSTS = ("10.199.7.1", "10.199.7.2")

    def __init__(self) -> None:
        mark = f"{os.getpid() % 100_000}"
        self.names, self.ends = (f"hwa{mark}", f"hwb{mark}"), (f"va{mark}", f"vb{mark}")

    def up(self) -> None:
        for name in self.names:
            _ip("netns", "add", name)
        a, b = self.names
        _ip(
            "link",
            "add",
            self.ends[0],
            "netns",
            a,
            "type",
            "veth",
            "peer",
            "name",
            self.ends[1],
            "netns",
            b,
        )
        for name, end, host in zip(self.names, self.ends, self.HOSTS, strict=True):
            _ip("-n", name, "addr", "add", f"{host}/24", "dev", end)
            _ip("-n", name, "link", "set", end, "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def cut(self) -> None:
        _ip("-n", self.names[1], "link", "set", self.ends[1], "down")

    def mend(self) -> None:
        _ip("-n", self.names[1], "link", "set", self.ends[1], "up")

    def down(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stderr)


@contextmanager
def link() -> Iterator[Link]:
    """Skips with one line where a machine does not let us have network namespaces."""
    needs.tool("ip", "iproute2")
    name = f"hwprobe{os.getpid() % 100_000}"
    needs.allowed(
        "network namespaces are", "sh", "-c", f"ip netns add {name} && ip netns del {name}"
    )
    cable = Link()
    try:
        cable.up()
        yield cable
    finally:
        cable.down()


def stored(machine: Machine) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((machine.home / "monitors.json").read_text())
    return found
