"""The machine that a job runs on: processor, memory, GPUs and their driver, from files of the kernel.
Part of a job's provenance, so that `hw diff` can say what was different. No driver is called: one
that hangs would hold up the agent.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.model.json_types import JsonObject

_CPUINFO_BYTES = 4096  # the first processor; all of them take a while on large machines
_GPUS_MAX = 64
_DRIVER = re.compile(r"NVIDIA UNIX[^\n]*?\s(\d+(?:\.\d+)+)\s")


def hardware(root: str = "/") -> "JsonObject":
    """`{cpu cores ram_bytes gpu driver}`, without what cannot be read."""
    found: JsonObject = {
        "cpu": _field(_read(os.path.join(root, "proc/cpuinfo"), _CPUINFO_BYTES), "model name"),
        "cores": os.cpu_count(),
        "ram_bytes": _memory(os.path.join(root, "proc/meminfo")),
        "gpu": _gpus(os.path.join(root, "proc/driver/nvidia/gpus")),
        "driver": _driver(root),
    }
    return {name: value for name, value in found.items() if value}


def _read(path: str, most: int = 65536) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(most).decode(errors="replace")
    except OSError:
        return ""


def _field(text: str, name: str) -> "str | None":
    """Of lines `name : value`."""
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == name:
            return " ".join(value.split())
    return None


def _memory(path: str) -> "int | None":
    words = (_field(_read(path), "MemTotal") or "").split()
    return int(words[0]) * 1024 if words and words[0].isdigit() else None


def _gpus(folder: str) -> "str | None":
    """`4 × NVIDIA A100-SXM4-80GB`, of every model."""
    try:
        cards = sorted(os.listdir(folder))[:_GPUS_MAX]
    except OSError:
        return None
    counts: dict[str, int] = {}
    for card in cards:
        model = _field(_read(os.path.join(folder, card, "information")), "Model") or "unknown"
        counts[model] = counts.get(model, 0) + 1
    return ", ".join(f"{count} × {model}" for model, count in counts.items()) or None


def _driver(root: str) -> "str | None":
    found = _DRIVER.search(_read(os.path.join(root, "proc/driver/nvidia/version")))
    if found:
        return f"NVIDIA {found[1]}"
    amd = _read(os.path.join(root, "sys/module/amdgpu/version")).strip()
    return f"amdgpu {amd}" if amd else None
