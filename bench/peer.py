"""The peers: their environments under `bench/envs/`, made on demand, and how one of their verbs is
run.

Versions and hashes are pinned in `bench/requirements/`. Installing is the only step that needs a
package index; while figures are measured, nothing talks to a network and the peers' own reporting
is off.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
DRIVER = BENCH / "peers" / "driver.py"
QUIET = {
    "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRACKIO_LOGBOOK_AUTONOTE": "0", "WANDB_MODE": "offline",
    "WANDB_SILENT": "true", "WANDB_CONSOLE": "off", "WANDB_ERROR_REPORTING": "false", "OTEL_SDK_DISABLED": "true",
    "NEPTUNE_MODE": "offline", "NEPTUNE_LOGGER_LEVEL": "error", "DO_NOT_TRACK": "1",
}  # fmt: skip
INSTALL_TIMEOUT_S = 600


class PeerError(Exception):
    """A peer that could not be installed, or whose driver failed."""


@dataclass(frozen=True, slots=True)
class Peer:
    name: str  # as it is called in tables, and its requirement file
    python: Path
    flags: tuple[str, ...] = ("-I",)

    @property
    def driver(self) -> str:
        return self.name.replace("-", "_").lower()

    def start(self, verb: str, folder: Path, *arguments: object) -> list[str]:
        return [
            str(self.python),
            *self.flags,
            str(DRIVER),
            self.driver,
            verb,
            str(folder),
            *map(str, arguments),
        ]

    def run(
        self, verb: str, folder: Path, *arguments: object, timeout_s: float = 300
    ) -> dict[str, Any]:
        """Run a verb and return what it measured."""
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            self.start(verb, folder, *arguments), env=environment(folder), cwd=folder, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=timeout_s, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise PeerError(
                f"{self.name} {verb} exited with {done.returncode}: {done.stderr[-400:]}"
            )
        return read_result(folder)


def read_result(folder: Path) -> dict[str, Any]:
    """What a driver left in its folder."""
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return result


PEERS = ("trackio", "wandb", "tensorboardX", "neptune-scale")
BARE = Peer("bare", Path(sys.executable))


def environment(folder: Path, **more: str) -> dict[str, str]:
    """A plain environment with a home of its own. Variables that change how Python runs are left
    out.
    """
    plain = {
        name: os.environ[name]
        for name in ("PATH", "LANG", "TZ", "SSL_CERT_FILE")
        if name in os.environ
    }
    return {**plain, **QUIET, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / ".cache"), **more}


def prepare(name: str) -> Peer:
    """The peer, installed. A marker with the requirement file's content says that an environment is
    complete.
    """
    wanted = BENCH / "requirements" / f"{name.lower()}.txt"
    folder = BENCH / "envs" / name.lower()
    marker, python = folder / "complete.txt", folder / "bin" / "python"
    if not marker.exists() or marker.read_text() != wanted.read_text():
        _install(folder, wanted, python)
        marker.write_text(wanted.read_text())
    return Peer(name, python)


def _install(folder: Path, wanted: Path, python: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    program = str(uv) if uv.exists() else shutil.which("uv")
    if program is None:
        raise PeerError("uv is not installed")
    shutil.rmtree(folder, ignore_errors=True)
    for argv in (
        [program, "venv", "-q", "--python", sys.executable, str(folder)],
        [program, "pip", "install", "-q", "--compile-bytecode", "--python", str(python), "--require-hashes",
         "-r", str(wanted)],
    ):  # fmt: skip
        try:
            done = subprocess.run(
                ["nice", *argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                timeout=INSTALL_TIMEOUT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise PeerError(f"installing took more than {INSTALL_TIMEOUT_S} s") from None
        if done.returncode != 0:
            raise PeerError(" ".join(done.stderr.split())[-200:])


def prepare_all() -> tuple[list[Peer], dict[str, str]]:
    """Every peer that can be had, and why the others cannot."""
    found, missing = [], {}
    for name in PEERS:
        try:
            found.append(prepare(name))
        except (PeerError, OSError) as error:
            missing[name] = str(error)
    return found, missing
