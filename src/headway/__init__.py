"""Headway: run, watch, compare and explain machine-learning jobs.

    import headway as hw

    hw.init(config={"lr": 0.1}, tags=["baseline"])
    hw.log({"loss": 0.4, "lr": 1e-3}, step=i)

The names below are the public ones. They are loaded when they are used first: `import headway` itself loads nothing.
"""

from _thread import get_ident

__version__ = "0.1.0"
__all__ = ["config", "finish", "flush", "init", "log"]

TYPE_CHECKING = False  # `typing` itself would be the slowest part of this import
if TYPE_CHECKING:
    from headway.client.api import config, finish, flush, init, log

_loading = 0  # the thread that loads the names just now
_early: "list[tuple[str, tuple[object, ...], dict[str, object]]]" = []


def __getattr__(name: str) -> object:
    global _loading
    if name not in __all__:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    if _loading == get_ident():
        return _keep(name)
    _loading = get_ident()
    try:
        from headway.client import api
    finally:
        _loading = 0
    for public in __all__:  # the next look-up is an ordinary one, which the hot path needs
        globals()[public] = getattr(api, public)
    while _early:
        function, args, options = _early.pop(0)
        getattr(api, function)(*args, **options)
    return globals()[name]


def _keep(name: str) -> object:
    """For a signal handler that comes in while the names are being loaded: its calls are made when they are there.

    Importing in there as well would make the import that it interrupted fail.
    """
    return {} if name == "config" else lambda *args, **options: _early.append((name, args, options))


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
