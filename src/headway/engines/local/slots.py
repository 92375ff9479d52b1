"""What this machine has: cores, memory and GPUs, and which GPU is whose. Called by the local
engine.

GPUs are counted by NVML in a thread that nobody waits for longer than a moment: a driver that hangs
costs the number, never the server (F44).
"""

import os
import threading
from collections.abc import Callable, Iterable

NVML_TIMEOUT_S = 5.0


def nvml_count() -> int:
    """GPUs that NVML knows; 0 where the library or the driver is missing."""
    try:
        import pynvml
    except ImportError:
        return 0
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0  # no driver, or no right to ask it
    try:
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0
    finally:
        pynvml.nvmlShutdown()


class GpuCount:
    """The number of GPUs: declared by the setting `gpus`, else asked once from NVML."""

    def __init__(
        self,
        declared: int | None,
        ask: Callable[[], int] = nvml_count,
        timeout_s: float = NVML_TIMEOUT_S,
    ) -> None:
        self._declared, self._ask, self._timeout_s = declared, ask, timeout_s
        self._found: int | None = None
        self._asked = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def get(self) -> tuple[int, str]:
        """(number, where it comes from). A late answer of a slow driver is used from then on."""
        if self._declared is not None:
            return self._declared, "setting"
        with self._lock:
            first = self._thread is None
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nvml", daemon=True)
                self._thread.start()
        self._asked.wait(self._timeout_s if first else 0)
        if not self._asked.is_set():
            return 0, f"NVML did not answer within {self._timeout_s:g} s"
        found = self._found or 0
        return found, "nvml" if found else "none found"

    def _run(self) -> None:
        try:
            self._found = self._ask()
        # a broken driver or binding can raise anything, and must cost the number only
        except Exception:
            self._found = 0
        self._asked.set()


def pick(total: int, taken: Iterable[int], wanted: int) -> list[int] | None:
    """The lowest free GPUs, or None when too few are free."""
    busy = set(taken)
    free = [gpu for gpu in range(total) if gpu not in busy]
    return free[:wanted] if len(free) >= wanted else None


def cpu_count() -> int:
    """Cores that this process may use: a container or taskset may give fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
