"""Headway as one of the contenders: the same driver as the peers, run as a job under `hw run`."""

import sys
from pathlib import Path

from bench.home import Home
from bench.peer import Peer

# not -I: a job has our bootstrap on PYTHONPATH
OURS = Peer("headway", Path(sys.executable), ("-P",))


def under_hw(home: Home, argv: list[str], cwd: Path, *, ok: tuple[int, ...] = (0,)) -> None:
    """Run a driver as a job, with its agent and the server at work beside it."""
    home.hw("run", *argv, cwd=cwd, ok=ok)
