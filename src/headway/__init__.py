"""Headway: run, watch, compare and explain machine-learning jobs.

    import headway as hw

    hw.init(config={"lr": 0.1}, tags=["baseline"])
    for batch in hw.track(data, "train"):
        hw.log({"loss": 0.4, "lr": 1e-3}, step=i)

The names below are the public ones. They are loaded when they are used first: `import headway`
itself loads nothing.
"""

import os as _os
import sys as _sys
from _thread import RLock as _RLock
from _thread import get_ident

__version__ = "0.1.0"
__all__ = [
    "Audio",
    "Figure",
    "File",
    "Histogram",
    "Html",
    "Image",
    "Job",
    "Jobs",
    "Progress",
    "Run",
    "Series",
    "Table",
    "Text",
    "Usage",
    "Video",
    "alert",
    "artifact",
    "config",
    "correlation",
    "data",
    "define_metric",
    "distributed",
    "finish",
    "flush",
    "init",
    "job",
    "jobs",
    "log",
    "on_preempt",
    "submit",
    "summary",
    "timed",
    "track",
    "use_artifact",
]

# The types that editors and checkers see stand in `__init__.pyi`.
# loaded together; the others each with its first use
_FIRST = ("config", "finish", "flush", "init", "log")
_OF_VIEWS = ("Job", "Jobs", "Series", "job", "jobs", "submit")  # need the command line's packages
_loading = 0  # the thread that loads the names just now
_early: "list[tuple[str, tuple[object, ...], dict[str, object]]]" = []


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    if name == "distributed":
        from headway.client import distributed

        return distributed
    if name in _OF_VIEWS:
        from importlib import import_module

        return getattr(import_module("headway.views.python_api"), name)
    if _loading == get_ident():
        return _keep(name)
    with _fork_gate:
        return _load(name)


def _load(name: str) -> object:
    global _loading
    _loading = get_ident()
    try:
        from headway.client import api

        # the next look-up is an ordinary one, which the hot path needs
        for public in (*_FIRST, name):
            globals()[public] = getattr(api, public)
    finally:
        _loading = 0
    while _early:
        function, args, options = _early.pop(0)
        getattr(api, function)(*args, **options)
    return globals()[name]


# Held while one thread loads modules of ours or begins the run (it is also the run's lock): a process
# forked then would inherit locks of imports that nobody releases, and wait for ever in its own first
# call. So a fork waits for it, a few milliseconds.
_fork_gate = _RLock()
_FORK_WAIT_S = 10.0  # then it is forked all the same: training never waits for us for long
_gate_held: "list[bool]" = []


def _before_fork() -> None:
    _gate_held.append(_fork_gate.acquire(timeout=_FORK_WAIT_S))


def _after_fork_in_parent() -> None:
    if _gate_held.pop():
        _fork_gate.release()


def _after_fork_in_child() -> None:
    _gate_held.clear()
    _fork_gate._at_fork_reinit()  # type: ignore[attr-defined]  # as threading.RLock has it


if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )


def _keep(name: str) -> object:
    """For a signal handler that comes in while the names are being loaded: its calls are made when
    they are there.

    Importing in there as well would make the import that it interrupted fail.
    """
    if name in _FIRST:
        return (
            {}
            if name == "config"
            else lambda *args, **options: _early.append((name, args, options))
        )
    return (lambda first, *_, **__: first) if name in ("track", "on_preempt") else _Nothing()


class _Nothing:
    """Stands for a tracker or a timing that such a handler asks for: it takes everything and does
    nothing.
    """

    def __getattr__(self, name: str) -> "_Nothing":
        return self

    def __call__(self, first: object = None, *args: object, **options: object) -> object:
        return first if callable(first) else self

    def __enter__(self) -> "_Nothing":
        return self

    def __exit__(self, *error: object) -> None:
        return None


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


# -- records of logging before the first call


class _AwaitLogging:
    """Finds nothing by itself; sees that `logging` is being imported."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name != "logging":
            return None
        _sys.meta_path[:] = [finder for finder in _sys.meta_path if finder is not self]
        from headway.client.bootstrap.headway_bootstrap import Lookout
        from headway.client.early_records import watch

        return Lookout("logging", watch).find_spec(name, path, target)


def _is_plain_script() -> bool:
    """A program of somebody else's that was started without us: a job has the bootstrap."""
    script = _os.path.basename(_sys.argv[0]) if getattr(_sys, "argv", None) else ""
    if script in ("", "-m", "-c", "hw") or script.startswith("headway"):
        return False
    is_off = _os.environ.get("HEADWAY_DISABLED", "") not in ("", "0")
    return not is_off and "HEADWAY_SPOOL" not in _os.environ


def _keep_early_records() -> None:
    if not _is_plain_script():
        return
    logging = _sys.modules.get("logging")
    if logging is None:
        _sys.meta_path.insert(0, _AwaitLogging())  # type: ignore[arg-type]
        return
    from headway.client.early_records import watch

    watch(logging)


try:
    _keep_early_records()
except Exception:  # P1: records may be missing, the program's import works  # noqa: S110
    pass
