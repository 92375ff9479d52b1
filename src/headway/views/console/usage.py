"""What the job uses: CPU, memory, GPU, each with its curve. Nothing is shown while nothing is known."""

from collections.abc import Iterator
from typing import Any, Final

from headway.views import format as fmt
from headway.views.console.cells import BOLD, CYAN, DIM, Line, flow, plain
from headway.views.console.curve import Curve, blocks, real

_CURVE_COLUMNS: Final = 10


def usage(found: dict[str, Any], curves: dict[str, Curve], columns: int) -> list[Line]:
    items = list(_items(found, curves))
    return flow(items, columns, 1, gap="   ") if items else []


def _items(found: dict[str, Any], curves: dict[str, Curve]) -> Iterator[Line]:
    if (cpu := real(found.get("cpu_percent"))) is not None:
        yield _item("cpu", f"{cpu:.0f} %", curves.get("cpu_percent"), 6)
    if (memory := real(found.get("memory_bytes"))) is not None:
        peak = real(found.get("peak_memory_bytes"))
        known = plain(f" peak {fmt.size(peak)}", DIM) if peak is not None and peak > memory * 1.05 else ()
        yield (*_item("memory", fmt.size(memory), curves.get("memory_bytes"), 9), *known)
    gpu, gpu_memory = real(found.get("gpu_percent")), real(found.get("gpu_memory_bytes"))
    if gpu is not None:
        yield _item("gpu", f"{gpu:.0f} %", curves.get("gpu_percent"), 5, high=100.0)
    if gpu_memory is not None:
        yield _item("gpu memory", fmt.size(gpu_memory), curves.get("gpu_memory_bytes"), 9)


def _item(name: str, value: str, curve: Curve | None, columns: int, high: float | None = None) -> Line:
    drawn = blocks(curve.values(), _CURVE_COLUMNS, 0.0, high) if curve is not None else ""
    return (*plain(f"{name} "), *plain(f"{value:<{columns}}", BOLD), *plain(f" {drawn}" if drawn else "", CYAN))
