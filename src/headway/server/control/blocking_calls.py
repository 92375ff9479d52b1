"""Calls that may hang, made from the event loop: each in a thread, none waited for longer than a
limit.

Used by `control.py` for engines and files. A call that hangs keeps its name taken, so that the same
question is not asked again and again of something that does not answer. Where the caller is in a
hurry, the answer that came too late is kept for the next time that it asks; and whoever has not
answered in time is not waited for at all until it has.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from headway.model.errors import UnreachableError

CALL_TIMEOUT_S = 20.0
THREADS = 32  # some for each cluster that hangs, and the others go on
HANGING_MAX = 4  # of one that is asked: each holds a thread, and the store and files need some, too

T = TypeVar("T")


class LateError(UnreachableError):
    """No answer yet; the call goes on."""


class Calls:
    def __init__(self, on_late: Callable[[], None], timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="headway-engine")
        self._hanging: dict[str, str] = {}  # name -> who was asked
        self._answers: dict[str, asyncio.Future[Any]] = {}  # came late, to callers in a hurry
        self._away: set[str] = set()  # whom it is no use to wait for
        self._on_late, self._timeout_s = on_late, timeout_s

    @property
    def has_late(self) -> bool:
        """Whether an answer has come too late, and nobody has asked for it since."""
        return bool(self._answers)

    def hangs(self, name: str) -> bool:
        return name in self._hanging

    async def run(
        self,
        name: str,
        call: Callable[..., T],
        *args: object,
        patience_s: float | None = None,
        of: str = "",
    ) -> T:
        """The call's result; LateError when it takes too long, or when an earlier one of that name
        still does.

        With `patience_s`, an answer that comes later than that is kept, and is the next one's under
        this name. `of`: who is asked. So one that is away holds a caller with many questions once,
        and not with each of them, and it holds a few threads, and not all.
        """
        if name in self._answers:
            late: asyncio.Future[T] = self._answers.pop(name)
            return late.result()
        if name in self._hanging:
            raise LateError(f"{name} still waits for an earlier answer")
        if of and list(self._hanging.values()).count(of) >= HANGING_MAX:
            raise LateError(
                f"{name} is not asked for: {HANGING_MAX} earlier calls still wait for {of}"
            )
        future = asyncio.get_running_loop().run_in_executor(self._threads, call, *args)
        limit_s = self._timeout_s if patience_s is None else min(patience_s, self._timeout_s)
        await asyncio.wait(
            {future}, timeout=0.0 if patience_s is not None and of in self._away else limit_s
        )
        if future.done():
            self._learn(of, future)
            return future.result()
        self._away |= {of} if of else set()
        self._hanging[name] = of
        future.add_done_callback(
            lambda late: self._late(name, late, of, keep=patience_s is not None)
        )
        raise LateError(f"{name} did not answer within {limit_s:g} s")

    def begin(self, call: Callable[..., T], *args: object) -> "asyncio.Future[T]":
        """A call that nobody waits for, however long it takes; the caller looks at its end."""
        return asyncio.get_running_loop().run_in_executor(self._threads, call, *args)

    def forget(self, name: str) -> None:
        """Nobody will ask under this name any more."""
        self._answers.pop(name, None)

    def _learn(self, of: str, future: "asyncio.Future[Any]") -> None:
        """Whether whoever was asked is there."""
        error = future.exception()  # looked at, so that asyncio does not warn
        if error is None:
            self._away.discard(of)
        elif of and isinstance(error, UnreachableError):
            self._away.add(of)

    def _late(self, name: str, future: "asyncio.Future[Any]", of: str, keep: bool) -> None:
        self._hanging.pop(name, None)
        if not future.cancelled():
            self._learn(of, future)
            if keep:
                self._answers[name] = future
        self._on_late()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
