"""`hw.on_preempt(callback)`: called when the machine will soon be wanted for something else, or the
job shall stop.

The notice is SIGTERM (its agent, a scheduler or `hw abort` sends it, and SIGKILL after a while) or
SIGUSR1 (only a notice). Handlers that the program had set before stay in force: they are called
after the callbacks. One that it sets later replaces ours, as Python has it.
"""

from __future__ import annotations

import os
import signal
import threading

from headway.client import api

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    C = TypeVar("C", bound=Callable[[], object])

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
_callbacks: "list[Callable[[], object]]" = []
_before: "dict[int, Any]" = {}
_keep: "list[Any]" = []  # what the interpreter was given and may still call


def on_preempt(callback: "C") -> "C":
    """Have `callback()` called, in the main thread, when this process is asked to make room: save a
    checkpoint there.

    After it the program goes on if the notice was SIGUSR1, and ends by SIGTERM if it was that,
    unless the program has a handler of its own, or the callback ends it: `sys.exit(200)` says that
    the rest can be done later. May be called several times, from any thread, and as a decorator.
    """
    _callbacks.append(callback)
    if threading.current_thread() is threading.main_thread():
        _install()
    else:
        _install_later()
    return callback


def _install() -> int:
    for signum in _SIGNALS:
        known = signal.getsignal(signum)
        if known is not _notice:
            _before[signum] = known
            signal.signal(signum, _notice)
    return 0


def _install_later() -> None:
    """Only the main thread may set handlers: the interpreter calls us there."""
    try:
        import ctypes

        call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda _: _install())
        _keep.append(call)
        ctypes.pythonapi.Py_AddPendingCall(call, None)
    except Exception as error:  # P1: no call of ours raises into training
        api.current_run().note("preempt", f"on_preempt() works in the main thread only: {error}")


def _notice(signum: int, frame: object) -> None:
    run = api.current_run()
    if run.has_started:
        run.fact("preempt_notice", by=f"signal {signum}")
    for callback in list(_callbacks):
        try:
            callback()
        except Exception as error:  # the others shall have their chance, and the signal its effect
            run.note("preempt", f"a callback of on_preempt failed: {type(error).__name__}: {error}")
    before = _before.get(signum)
    if callable(before):
        before(signum, frame)
    elif signum == signal.SIGTERM and before in (signal.SIG_DFL, None):
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)  # so that whoever waits for us sees what ended us
