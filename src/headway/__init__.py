"""Headway: run, watch, compare and explain machine-learning jobs.

    import headway as hw

    hw.init(config={"lr": 0.1}, tags=["baseline"])
    hw.log({"loss": 0.4, "lr": 1e-3}, step=i)

The names below are the public ones. They are loaded when they are used first: `import headway` itself loads nothing.
"""

__version__ = "0.1.0"
__all__ = ["config", "finish", "flush", "init", "log"]

TYPE_CHECKING = False  # `typing` itself would be the slowest part of this import
if TYPE_CHECKING:
    from headway.client.api import config, finish, flush, init, log


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    from headway.client import api

    for public in __all__:  # the next look-up is an ordinary one, which the hot path needs
        globals()[public] = getattr(api, public)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
