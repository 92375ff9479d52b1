"""Headway itself, through its public names only; a job of its own under plain Python, or a process
under `hw run`.
"""

import importlib
from collections.abc import Callable
from typing import Any

_headway: Any = None


def start(folder: str) -> Callable[..., object]:
    global _headway
    _headway = importlib.import_module("headway")
    log: Callable[..., object] = _headway.log
    return log


def sampler(pids: list[int]) -> Callable[[], object]:
    """The agent's own, with each process as a rank; what it tells is put into words as for its
    stream.
    """
    probes = importlib.import_module("headway.agent.probes.sampler")
    words = importlib.import_module("headway.agent.probes.usage_stream").Words()
    now_s = 0.0
    made = probes.Sampler(1.0, words.of, now_s)
    for rank, pid in enumerate(pids):
        made.follow(rank, pid, None)

    def sample() -> None:
        nonlocal now_s
        now_s += 1.0
        made.step(now_s)

    return sample


def stop() -> None:
    _headway.finish()
