"""Calls that may hang, made from the event loop: each in a thread, none waited for longer than a limit.

Used by `control.py` for engines and files. A call that hangs keeps its name taken, so that the same question is not
asked again and again of something that does not answer.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from headway.model.errors import UnreachableError

CALL_TIMEOUT_S = 20.0
THREADS = 16

T = TypeVar("T")


class Calls:
    def __init__(self, on_late: Callable[[], None], timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="headway-engine")
        self._hanging: dict[str, asyncio.Future[Any]] = {}
        self._on_late, self._timeout_s = on_late, timeout_s

    def hangs(self, name: str) -> bool:
        return name in self._hanging

    async def run(self, name: str, call: Callable[..., T], *args: Any) -> T:
        """The call's result; UnreachableError when it hangs, or when an earlier one of that name still does."""
        if name in self._hanging:
            raise UnreachableError(f"{name} still waits for an earlier answer")
        future = asyncio.get_running_loop().run_in_executor(self._threads, call, *args)
        await asyncio.wait({future}, timeout=self._timeout_s)
        if future.done():
            return future.result()
        self._hanging[name] = future
        future.add_done_callback(lambda late: self._late(name, late))
        raise UnreachableError(f"{name} did not answer within {self._timeout_s:g} s")

    def _late(self, name: str, future: "asyncio.Future[Any]") -> None:
        self._hanging.pop(name, None)
        if not future.cancelled():
            future.exception()  # looked at, so that asyncio does not warn; the caller was told long ago
        self._on_late()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
