"""Names of wandb that Headway does not have: one warning each, then an object that takes all calls and does nothing."""

from __future__ import annotations

from headway.compat.wandb_types import warn_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Nothing:
    """Takes every call, attribute and item. It is false and empty, so that a script which asks sees that."""

    def __init__(self, *_: object, **__: object) -> None:
        return None

    def __getattr__(self, name: str) -> "Any":
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __call__(self, *args: object, **_: object) -> "Any":
        # a decorator hands back what it was given
        return args[0] if len(args) == 1 and callable(args[0]) else Nothing()

    def __getitem__(self, _: object) -> "Any":
        return Nothing()

    def __setitem__(self, _: object, __: object) -> None:
        return None

    def __iter__(self) -> "Iterator[Any]":
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> "Nothing":
        return self

    def __exit__(self, *_: object) -> None:
        return None


def anything(name: str) -> "Any":
    """What stands for `wandb.<name>`; a class where the name is written as one, for it may be inherited from."""
    warn_once(f"unknown {name}", f"wandb.{name} is not known to Headway: it does nothing here")
    last = name.rpartition(".")[2]
    return type(last, (Nothing,), {}) if last[:1].isupper() else Nothing()
