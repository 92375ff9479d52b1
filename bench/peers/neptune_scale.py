"""neptune-scale, offline: operations as protobuf messages in SQLite, written in the training
process.
"""

import glob
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

_run: Any = None


def start(folder: str) -> Callable[..., object]:
    global _run
    neptune = importlib.import_module("neptune_scale")
    _run = neptune.Run(
        run_id="run", project="bench/bench", mode="offline", log_directory=folder,
        enable_console_log_capture=False, source_tracking_config=None,
    )  # fmt: skip
    log: Callable[..., object] = _run.log_metrics
    return log


def stop() -> None:
    _run.close()


def reader(folder: str) -> Callable[[str], list[float]]:
    repository = importlib.import_module(
        "neptune_scale.sync.operations_repository"
    ).OperationsRepository

    def read(name: str) -> list[float]:
        found: list[float] = []
        for path in glob.glob(os.path.join(folder, "**", "run_operations.sqlite3"), recursive=True):
            store, last = repository(db_path=Path(path)), 0
            while operations := store.get_operations(up_to_bytes=1 << 28, from_exclusive=last):
                appends = (getattr(operation.operation, "append", {}) for operation in operations)
                found.extend(append[name].float64 for append in appends if name in append)
                last = operations[-1].sequence_id
            store.close(cleanup_files=False)
        return found

    return read
