"""trackio: a queue in the training process, a thread that writes rows of JSON into SQLite."""

import contextlib
import importlib
import io
import os
from collections.abc import Callable
from typing import Any

_trackio: Any = None
_PROJECT = "bench"


def start(folder: str) -> Callable[..., object]:
    global _trackio
    os.environ["TRACKIO_DIR"] = folder
    _trackio = importlib.import_module("trackio")
    with contextlib.redirect_stdout(io.StringIO()):
        _trackio.init(
            project=_PROJECT, name="run", embed=False, auto_log_gpu=False, auto_log_cpu=False
        )
    log: Callable[..., object] = _trackio.log
    return log


def stop() -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        _trackio.finish()


def reader(folder: str) -> Callable[[str], list[float]]:
    os.environ["TRACKIO_DIR"] = folder
    storage = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
    return lambda name: [row["value"] for row in storage.get_metric_values(_PROJECT, "run", name)]
