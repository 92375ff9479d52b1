"""Asks the GPU driver, in a process of its own: started by `gpu`, which sends a line and gets a
line of JSON back.

Only the C library is used, through ctypes: the agent has no packages. Every value has its own
answer, so one that a card does not support is null and the others stand (B34). Ends with its
parent.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

from headway.model.limits import GPU_CARDS_MAX, GPU_HOLDERS_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headway.model.json_types import JsonObject

_INSUFFICIENT_SIZE = 7
_UNKNOWN_BYTES = 2**64 - 1
_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_CORRECTED, _UNCORRECTED = 0, 1
_VOLATILE = 0  # since the driver was loaded
_GPU_SENSOR = 0
THROTTLES = {  # what keeps the clocks down; idleness does not count
    0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost", 0x20: "thermal",
    0x40: "hardware thermal", 0x80: "power brake", 0x100: "display clocks",
}  # fmt: skip


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class _Holder(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class NvmlError(Exception):
    """The library as a whole cannot be used; the text says why."""


class Nvml:
    def __init__(self, library: str) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise NvmlError(f"no GPU driver: {error}") from None
        code = self._call("nvmlInit_v2")
        if code != 0:
            raise NvmlError(f"the GPU driver cannot be used: NVML error {code}")
        self._fixed: dict[int, JsonObject] = {}

    def _call(self, name: str, *arguments: object) -> int:
        try:
            return int(getattr(self._library, name)(*arguments))
        except AttributeError:  # an older or newer library does not have it
            return -1

    def _get(self, name: str, kind: "Any", *arguments: "Any") -> "Any":
        """The value that a function writes through its last argument; None when it says no."""
        value = kind()
        return value if self._call(name, *arguments, ctypes.byref(value)) == 0 else None

    def _number(self, name: str, *arguments: object) -> int | None:
        value = self._get(name, ctypes.c_uint, *arguments)
        return None if value is None else int(value.value)

    def _text(self, name: str, handle: object) -> str | None:
        buffer = ctypes.create_string_buffer(96)
        if self._call(name, handle, buffer, ctypes.c_uint(96)) != 0:
            return None
        return buffer.value.decode("utf-8", "replace")

    def sample(self) -> "list[JsonObject]":
        count = self._number("nvmlDeviceGetCount_v2")
        if count is None:
            raise NvmlError("the GPU driver does not count its cards")
        return [self._card(index) for index in range(min(count, GPU_CARDS_MAX))]

    def _card(self, index: int) -> "JsonObject":
        handle = self._get("nvmlDeviceGetHandleByIndex_v2", ctypes.c_void_p, ctypes.c_uint(index))
        if handle is None:  # fallen off the bus
            return {**_NOTHING, "index": index}
        if index not in self._fixed:
            names = {
                "name": self._text("nvmlDeviceGetName", handle),
                "uuid": self._text("nvmlDeviceGetUUID", handle),
            }
            self._fixed[index] = names
        load = self._get("nvmlDeviceGetUtilizationRates", _Utilization, handle)
        memory = self._get("nvmlDeviceGetMemoryInfo", _Memory, handle)
        power = self._number("nvmlDeviceGetPowerUsage", handle)
        return {
            "index": index, **self._fixed[index],
            "load_percent": None if load is None else load.gpu,
            "memory_bytes": None if memory is None else memory.used,
            "memory_total_bytes": None if memory is None else memory.total,
            "power_w": None if power is None else power / 1000,
            "temperature_c": self._number("nvmlDeviceGetTemperature", handle, _GPU_SENSOR),
            "sm_mhz": self._number("nvmlDeviceGetClockInfo", handle, _SM_CLOCK),
            "memory_mhz": self._number("nvmlDeviceGetClockInfo", handle, _MEMORY_CLOCK),
            "throttle": self._throttle(handle),
            "ecc_corrected": self._ecc(handle, _CORRECTED), "ecc_uncorrected": self._ecc(handle, _UNCORRECTED),
            "holders": self._holders(handle),
        }  # fmt: skip

    def _throttle(self, handle: object) -> list[str] | None:
        for name in (
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
        ):
            reasons = self._get(name, ctypes.c_ulonglong, handle)
            if reasons is not None:
                return [word for bit, word in THROTTLES.items() if reasons.value & bit]
        return None

    def _ecc(self, handle: object, kind: int) -> int | None:
        errors = self._get(
            "nvmlDeviceGetTotalEccErrors", ctypes.c_ulonglong, handle, kind, _VOLATILE
        )
        return None if errors is None else int(errors.value)

    def _holders(self, handle: object) -> "list[JsonObject] | None":
        found: dict[int, int | None] = {}
        known = False
        for kind in ("Compute", "Graphics"):
            processes = self._processes(f"nvmlDeviceGet{kind}RunningProcesses_v3", handle)
            known = known or processes is not None
            for one in processes or ():
                found[one.pid] = None if one.used == _UNKNOWN_BYTES else one.used
        return (
            [{"pid": pid, "bytes": size} for pid, size in sorted(found.items())] if known else None
        )

    def _processes(self, name: str, handle: object) -> "list[Any] | None":
        room = 16
        while room <= GPU_HOLDERS_MAX:
            count, rows = ctypes.c_uint(room), (_Holder * room)()
            code = self._call(name, handle, ctypes.byref(count), rows)
            if code == 0:
                return list(rows[: min(count.value, room)])
            if code != _INSUFFICIENT_SIZE:
                return None
            room *= 4
        return None


_NOTHING: "JsonObject" = dict.fromkeys(
    "index name uuid load_percent memory_bytes memory_total_bytes power_w temperature_c sm_mhz memory_mhz throttle "
    "ecc_corrected ecc_uncorrected holders".split()
)


def main() -> None:
    """Answer each line `N` on stdin with `{"number": N, "gpus": […]}`, or `{"error": …}` when there
    is no use.

    The library is the first argument.
    """
    _end_with_parent()
    nvml: Nvml | None = None
    for line in iter(sys.stdin.readline, ""):
        try:
            if nvml is None:
                nvml = Nvml(sys.argv[1])
            answer: JsonObject = {"number": int(line), "gpus": nvml.sample()}
        except NvmlError as error:
            answer = {"error": str(error)}
        os.write(1, json.dumps(answer, separators=(",", ":")).encode() + b"\n")
        if "error" in answer:
            return


def _end_with_parent() -> None:
    """Also when it hangs inside the driver while its parent is killed."""
    pr_set_pdeathsig, sigkill = 1, 9
    try:
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, sigkill, 0, 0, 0)
    except (OSError, AttributeError):
        return  # not Linux; it sees the end of its input
