"""tensorboardX: an event file, written by a thread; read back with TensorBoard's own accumulator."""

import importlib
from collections.abc import Callable
from typing import Any

_writer: Any = None


def start(folder: str) -> Callable[..., object]:
    global _writer
    _writer = importlib.import_module("tensorboardX").SummaryWriter(folder)
    add = _writer.add_scalar

    def log(values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            add(name, value, step)

    return log


def stop() -> None:
    _writer.close()


def reader(folder: str) -> Callable[[str], list[float]]:
    module = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")

    def read(name: str) -> list[float]:
        events = module.EventAccumulator(folder, size_guidance={"scalars": 0})
        events.Reload()
        return (
            [event.value for event in events.Scalars(name)]
            if name in events.Tags()["scalars"]
            else []
        )

    return read
