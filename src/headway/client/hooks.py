"""What the client puts around a program: uncaught exceptions are written down, and so is its end.

`install` is called when a run starts. Every hook calls the one that was there before, so the
program's own handlers and Python's messages stay as they are. HEADWAY_FORWARD_EXCEPTIONS=0 leaves
exceptions alone.
"""

from __future__ import annotations

import _thread
import atexit
import builtins
import os
import sys

from headway.client.run import is_interactive

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from headway.client.run import Run

_installed: "list[Run]" = []
_pids: list[int] = []  # of this process and, in a forked child, its ancestors
_exit_asked: list[object] = []  # the argument of the last sys.exit() in the main thread


def install(run: "Run") -> None:
    """When streams are opened; the hooks are put in once, and forked children inherit them."""
    if os.getpid() not in _pids:
        _pids.append(os.getpid())
        _watch_child(run)
    if _installed:
        return
    _installed.append(run)
    atexit.register(at_exit, run)
    os.register_at_fork(after_in_child=lambda: _after_fork(run))
    _watch_main(run)
    _watch_threads(run)
    _watch_unraisable(run)
    _watch_fatal(run)
    _watch_logging(run)
    _watch_stacks()
    if run.place is not None and run.place.attached:
        _watch_exit()


def _after_fork(run: "Run") -> None:
    _exit_asked.clear()
    try:
        run.after_fork()
    except Exception:  # P1: a child that cannot log is better than one that cannot start
        run.is_off = True


def _watch_child(run: "Run") -> None:
    """A child of multiprocessing leaves by os._exit, past atexit, but runs its own finalizers."""
    process: Any = sys.modules.get("multiprocessing.process")
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None and process is not None and process.parent_process() is not None:
        util.Finalize(None, at_exit, args=(run,), exitpriority=-10)


def _watch_main(run: "Run") -> None:
    before = sys.excepthook

    def excepthook(
        kind: type[BaseException], error: BaseException, tb: "TracebackType | None"
    ) -> None:
        if isinstance(error, BaseException):
            run.exception("main", error, tb)
        before(kind, error, tb)

    sys.excepthook = excepthook


def keep_interrupted(error: object) -> None:
    """A program that Ctrl-C ends dies of SIGINT, which its shell or launcher sees; Python forgets
    that it must.

    It forgets when text is evaluated in between, as importing `traceback` does, and remembers when
    text raises it.
    """
    if isinstance(error, KeyboardInterrupt) and not is_interactive():
        try:
            exec("raise KeyboardInterrupt")  # noqa: S102  (a constant)
        except KeyboardInterrupt:
            return


def _watch_threads(run: "Run") -> None:
    """`threading` takes its hook from `_thread` when it is imported, so we need not import it for
    this.
    """
    threading: Any = sys.modules.get("threading")
    before = threading.excepthook if threading else getattr(_thread, "_excepthook", None)

    def excepthook(args: "Any", /) -> None:
        if isinstance(args.exc_value, BaseException) and not isinstance(args.exc_value, SystemExit):
            run.exception(
                "thread", args.exc_value, args.exc_traceback, getattr(args.thread, "name", None)
            )
        if before is not None:
            before(args)

    if threading:
        threading.excepthook = excepthook
    elif before is not None:
        _thread._excepthook = excepthook


def _watch_unraisable(run: "Run") -> None:
    before = sys.unraisablehook

    def unraisablehook(args: "Any", /) -> None:
        if isinstance(args.exc_value, Exception):
            run.exception("unraisable", args.exc_value, args.exc_traceback)
        before(args)

    sys.unraisablehook = unraisablehook


def _watch_fatal(run: "Run") -> None:
    """A segmentation fault and its like leave a traceback on stderr, where the program has not seen
    to that itself.
    """
    if run.environ.get("HEADWAY_FORWARD_EXCEPTIONS", "1") != "0":
        enable_faulthandler()


def _watch_stacks() -> None:
    """Where the bootstrap was not loaded: a script that was started without us."""
    from headway.client.bootstrap.headway_bootstrap import watch_stacks

    watch_stacks()


def enable_faulthandler() -> None:
    import faulthandler

    try:
        if not faulthandler.is_enabled():
            faulthandler.enable(file=2)
    except (OSError, RuntimeError, ValueError):
        return  # there is no stderr


def _watch_logging(run: "Run") -> None:
    """Now if the program uses `logging` already, else when it imports it: we have no reason to do
    that for it.
    """

    def install() -> None:
        from headway.client import logging_capture

        logging_capture.install(run)

    if "logging" in sys.modules:
        install()
    else:
        from headway.client.bootstrap.headway_bootstrap import Lookout

        sys.meta_path.insert(0, Lookout("logging", lambda _: install()))


def _watch_exit() -> None:
    """Nobody waits for an attached process, so its exit code is learned from its own call of
    sys.exit() or exit().
    """
    before, quitter = sys.exit, type(getattr(builtins, "exit", None))

    def exit(status: "Any" = None, /) -> "Any":
        _ask_exit(status)
        before(status)

    sys.exit = exit
    if quitter.__name__ == "Quitter":  # of the site module: exit() and quit()
        call: Any = quitter.__call__

        def quit_(self: object, code: object = None) -> "Any":
            _ask_exit(code)
            return call(self, code)

        quitter.__call__ = quit_  # type: ignore[method-assign]


def _ask_exit(status: object) -> None:
    threading: Any = sys.modules.get("threading")
    if threading is None or threading.current_thread() is threading.main_thread():
        _exit_asked[:] = [status]


def at_exit(run: "Run") -> None:
    """The last thing of a process that ends by itself. Never raises."""
    try:
        error = getattr(sys, "last_value", None)
        if run.exit_code is None and isinstance(error, BaseException) and not is_interactive():
            run.exception("main", error)  # told here when the program has replaced sys.excepthook
        run.end(run.exit_code if run.exit_code is not None else exit_code())
        keep_interrupted(error)  # after all that was imported since it came
    except Exception:  # P1: nothing of ours may disturb the end of a program
        return


def exit_code() -> int | None:
    """The exit code of a program that no exception ends; None when it cannot be known.

    Python removes `__file__` from a script's namespace when the script has run to its end, so a
    sys.exit() that was caught can be told from one that was not, and `raise SystemExit(3)` from
    success.
    """
    main = sys.modules.get("__main__")
    is_script = getattr(main, "__spec__", None) is None and bool(
        sys.argv and os.path.isfile(sys.argv[0])
    )
    if is_script and not hasattr(main, "__file__"):
        return 0
    if _exit_asked:
        return code_of(_exit_asked[0])
    return None if is_script else 0


def code_of(status: object) -> int:
    """What the system is told for the argument of sys.exit()."""
    if status is None:
        return 0
    return int(status) & 0xFF if isinstance(status, int) else 1
