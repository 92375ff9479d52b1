"""What the job uses: CPU, memory, GPU, each with its curve. Nothing is shown while nothing is
known.
"""

import math
from collections.abc import Iterator
from typing import Final

from headway.model.json_types import JsonObject
from headway.views.console.cells import BOLD, CYAN, DIM, Line, flow, plain
from headway.views.console.widgets.curve import Curve, blocks, real
from headway.views.text import format as fmt

_CURVE_COLUMNS_MIN: Final = 10
_CURVE_COLUMNS_MAX: Final = 40
_ITEM_COLUMNS: Final = 40  # of one figure with its words, without the curve
_SHOWN: Final = ("cpu_percent", "memory_bytes", "gpu_percent", "gpu_memory_bytes")
_IDLE_SHARE: Final = 0.4  # of the mean; below it a rank is named
_PEAK_SHARE: Final = 1.5  # likewise, above it


def usage(found: JsonObject, curves: dict[str, Curve], columns: int) -> list[Line]:
    shown = sum(1 for name in _SHOWN if real(found.get(name)) is not None)
    spare = columns // max(shown, 1) - _ITEM_COLUMNS
    room = min(max(spare, _CURVE_COLUMNS_MIN), _CURVE_COLUMNS_MAX)
    items = list(_items(found, curves, room))
    return flow(items, columns, 1, gap="   ") if items else []


def total(found: JsonObject, name: str, counted: str = "ranks") -> float | None:
    """Of all ranks together; the server tells their mean and how many they are."""
    mean, count = real(found.get(name)), real(found.get(counted))
    if mean is None or not math.isfinite(mean):
        return None
    return mean * max(count or 1.0, 1.0)


def _items(found: JsonObject, curves: dict[str, Curve], room: int) -> Iterator[Line]:
    if (cpu := total(found, "cpu_percent")) is not None:
        yield (
            *_item("cpu", f"{cpu:.0f} %", curves.get("cpu_percent"), 6, room),
            *plain(_idle(found, "cpu_percent"), DIM),
        )
    if (memory := total(found, "memory_bytes")) is not None:
        yield (
            *_item("memory", fmt.size(memory), curves.get("memory_bytes"), 9, room),
            *plain(_peak(found), DIM),
        )
    if (gpu := real(found.get("gpu_percent"))) is not None and math.isfinite(gpu):
        yield (
            *_item("gpu", f"{gpu:.0f} %", curves.get("gpu_percent"), 5, room, 100.0),
            *plain(_idle(found, "gpu_percent"), DIM),
        )
    if (gpu_memory := total(found, "gpu_memory_bytes", "gpus")) is not None:
        yield _item("gpu memory", fmt.size(gpu_memory), curves.get("gpu_memory_bytes"), 9, room)


def _idle(found: JsonObject, name: str) -> str:
    """Who does much less than the others: what one looks for when a job is slow."""
    spread, mean = (found.get("spread") or {}).get(name) or {}, real(found.get(name))
    low, rank = real(spread.get("min")), spread.get("min_rank")
    if low is None or mean is None or rank is None or not mean > 10 or low > mean * _IDLE_SHARE:
        return ""
    what = "card" if name.startswith("gpu") else "rank"
    return f" {what} {rank} only {low:.0f} %"


def _peak(found: JsonObject) -> str:
    """Of one process the most that it has used; of several only the one that has used much more
    than the others.
    """
    peak, memory = real(found.get("peak_memory_bytes")), real(found.get("memory_bytes"))
    if peak is None or memory is None:
        return ""
    if (real(found.get("ranks")) or 1) > 1:
        rank = found.get("peak_rank")
        return (
            f" rank {rank} up to {fmt.size(peak)}"
            if rank is not None and peak > memory * _PEAK_SHARE
            else ""
        )
    return f" peak {fmt.size(peak)}" if peak > memory * 1.05 else ""


def _item(
    name: str, value: str, curve: Curve | None, columns: int, room: int, high: float | None = None
) -> Line:
    drawn = blocks(curve.values(), room, 0.0, high) if curve is not None else ""
    return (
        *plain(f"{name} "),
        *plain(f"{value:<{columns}}", BOLD),
        *plain(f" {drawn}" if drawn else "", CYAN),
    )
