"""Headway: run, watch, compare and explain machine-learning jobs.

    import headway as hw

    hw.init(config={"lr": 0.1}, tags=["baseline"])
    for batch in hw.track(data, "train"):
        hw.log({"loss": 0.4, "lr": 1e-3}, step=i)

The names below are the public ones. They are loaded when they are used first: `import headway`
itself loads nothing.
"""

from _thread import get_ident

__version__ = "0.1.0"
__all__ = [
    "Audio",
    "Figure",
    "File",
    "Histogram",
    "Html",
    "Image",
    "Progress",
    "Table",
    "Text",
    "Usage",
    "Video",
    "alert",
    "artifact",
    "config",
    "correlation",
    "define_metric",
    "distributed",
    "finish",
    "flush",
    "init",
    "log",
    "on_preempt",
    "summary",
    "timed",
    "track",
]

TYPE_CHECKING = False  # `typing` itself would be the slowest part of this import
if TYPE_CHECKING:
    from headway.client import distributed
    from headway.client.api import (
        Audio,
        Figure,
        File,
        Histogram,
        Html,
        Image,
        Progress,
        Table,
        Text,
        Usage,
        Video,
        alert,
        artifact,
        config,
        correlation,
        define_metric,
        finish,
        flush,
        init,
        log,
        on_preempt,
        summary,
        timed,
        track,
    )

# loaded together; the others each with its first use
_FIRST = ("config", "finish", "flush", "init", "log")
_loading = 0  # the thread that loads the names just now
_early: "list[tuple[str, tuple[object, ...], dict[str, object]]]" = []


def __getattr__(name: str) -> object:
    global _loading
    if name not in __all__:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    if name == "distributed":
        from headway.client import distributed

        return distributed
    if _loading == get_ident():
        return _keep(name)
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
