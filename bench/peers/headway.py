"""Headway itself, through its public names only; a job of its own under plain Python, or a process under `hw run`."""

import importlib
from collections.abc import Callable
from typing import Any

_headway: Any = None


def start(folder: str) -> Callable[..., object]:
    global _headway
    _headway = importlib.import_module("headway")
    log: Callable[..., object] = _headway.log
    return log


def stop() -> None:
    _headway.finish()
