"""Telling a program's own exception, raised by its signal handler, from trouble of ours. Called
wherever we catch all.

A handler may run inside any call of ours and raise to unwind the program: a preemption that saves a
checkpoint, an alarm that ends an evaluation. Such an exception is not ours to swallow (P1 is about
what *we* raise).
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any


def raise_if_signal(error: Exception) -> None:
    """Raise `error` again if a signal handler of the program raised it."""
    tb = error.__traceback__
    if tb is None or tb.tb_next is None:
        return  # raised by the very line that we called: no handler's frame is in it
    codes = _handler_codes()
    while codes and tb is not None:
        if tb.tb_frame.f_code in codes:
            raise error
        tb = tb.tb_next


def _handler_codes() -> "set[CodeType]":
    """The code of every handler that the program has installed, also of methods, partials and
    callable objects.
    """
    signal: Any = sys.modules.get("signal")
    if signal is None:
        return set()  # without it nobody has installed one
    found = set()
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        handler = getattr(handler, "func", handler)
        call = getattr(type(handler), "__call__", None)  # noqa: B004  (its code is asked for, not whether it can)
        for candidate in (handler, getattr(handler, "__func__", None), call):
            code = getattr(candidate, "__code__", None)
            if code is not None:
                found.add(code)
    return found
