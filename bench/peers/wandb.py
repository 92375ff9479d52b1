"""wandb, offline: records go over a socket to wandb-core, which appends them to a log of 32 KiB
blocks.
"""

import glob
import importlib
import os
import struct
from collections.abc import Callable, Iterator
from typing import Any

_run: Any = None
_BLOCK_BYTES = 32768
_FILE_HEADER_BYTES = 7
_CHUNK = struct.Struct("<IHB")  # crc, length, type: 1 whole, 2 first, 3 middle, 4 last


def start(folder: str) -> Callable[..., object]:
    global _run
    wandb = importlib.import_module("wandb")
    settings = wandb.Settings(
        console="off", disable_git=True, save_code=False,
        x_disable_stats=True, x_disable_meta=True, x_disable_machine_info=True,
    )  # fmt: skip
    _run = wandb.init(project="bench", dir=folder, mode="offline", settings=settings)
    log: Callable[..., object] = _run.log
    return log


def watch(folder: str, on: bool) -> Callable[[], list[int]]:
    """Its system monitor, told to look at the whole tree each second; tells the processes that do
    its work.
    """
    global _run
    wandb = importlib.import_module("wandb")
    settings = wandb.Settings(
        console="off", disable_git=True, save_code=False, x_disable_stats=not on,
        x_stats_sampling_interval=1.0, x_stats_track_process_tree=True, x_stats_pid=os.getpid(),
    )  # fmt: skip
    _run = wandb.init(project="bench", dir=folder, mode="offline", settings=settings)
    return _workers


def _workers() -> list[int]:
    """wandb-core, which we have started, and the monitor that it has started."""
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                name, fields = file.read().rsplit(")", 1)
        except OSError:
            continue
        if "(wandb-" in name:
            parents[int(entry)] = int(fields.split()[1])
    core = [pid for pid, parent in parents.items() if parent == os.getpid()]
    return core + [pid for pid, parent in parents.items() if parent in core]


def stop() -> None:
    _run.finish()


def reader(folder: str) -> Callable[[str], list[float]]:
    """wandb has no reader of its own for this file outside its Go core: this is the smallest one,
    with its messages.
    """
    record_type = importlib.import_module("wandb.proto.wandb_internal_pb2").Record

    def read(name: str) -> list[float]:
        found: list[float] = []
        for path in glob.glob(os.path.join(folder, "wandb", "offline-run-*", "*.wandb")):
            with open(path, "rb") as file:
                for payload in _payloads(file.read()):
                    items = record_type.FromString(payload).history.item
                    found.extend(
                        float(item.value_json)
                        for item in items
                        if name in (item.key, *item.nested_key)
                    )
        return found

    return read


def _payloads(data: bytes) -> Iterator[bytes]:
    pos, parts = _FILE_HEADER_BYTES, b""
    while pos + _CHUNK.size <= len(data):
        left = _BLOCK_BYTES - pos % _BLOCK_BYTES
        if left < _CHUNK.size:
            pos += left
            continue
        _, length, kind = _CHUNK.unpack_from(data, pos)
        pos += _CHUNK.size
        if kind == 0 or pos + length > len(data):
            return  # a tail that was never written whole
        parts += data[pos : pos + length]
        pos += length
        if kind in (1, 4):
            yield parts
            parts = b""
