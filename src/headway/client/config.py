"""`hw.config`: the job's config as the program sees it. Every change is written down, whole and
masked.

A mapping, not an object with attributes, so that a key can never hide a method. Called by training.
"""

from __future__ import annotations

import os

# loaded by every Python; `collections` itself is not
from _collections_abc import Iterator, MutableMapping
from itertools import islice

from headway.client.interrupt import raise_if_signal
from headway.client.metric_values import type_name
from headway.model.limits import CONFIG_ITEMS_MAX

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from typing import Any

    from headway.client.run import Run
    from headway.model.json_types import JsonObject


class Config(MutableMapping[str, "Any"]):
    """`hw.config["lr"] = 0.1`, `hw.config.update(vars(args))`. Values are kept as given and read
    back as given.

    A change inside a value (`hw.config["model"]["depth"] = 3`) is noticed at the next change or at
    the end.
    """

    __slots__ = ("_run", "_values")

    def __init__(self, run: "Run") -> None:
        self._run = run
        self._values: JsonObject = {}

    def __getitem__(self, key: str) -> "Any":
        return self._values[key]

    def __setitem__(self, key: str, value: object) -> None:
        self._values[key] = value
        self._run.config_changed()

    def __delitem__(self, key: str) -> None:
        del self._values[key]
        self._run.config_changed()

    def clear(self) -> None:
        """At once: the inherited one would write down every key's removal."""
        self._values.clear()
        self._run.config_changed()

    def forget(self) -> None:
        """Another run begins: nothing of the last one's config is left, and nothing is written."""
        self._values = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"headway.config({self._values!r})"

    def update(self, *args: object, **values: object) -> None:
        """As of a dict, also from a namespace, a dataclass or another object with fields; written
        down once.
        """
        try:
            for arg in args:
                self._values.update(as_dict(arg))
        # P1: a config of somebody else's making may raise anything when it is read
        except Exception as error:
            raise_if_signal(error)
            self._run.note(
                "config",
                f"a config of type {type_name(args[0])} could not be read: {type(error).__name__}",
            )
        self._values.update(values)
        self._run.config_changed()


def as_dict(config: object) -> JsonObject:
    """What a person passes as a config, one level deep; deeper ones are converted when they are
    written down.
    """
    from headway.client.config_plain import pairs_of

    if config is None:
        return {}
    if isinstance(config, (str, os.PathLike)):
        from headway.client.config_file import read_config

        return read_config(os.fspath(config))
    if hasattr(config, "flag_values_dict"):  # of absl
        return dict(config.flag_values_dict())
    pairs = pairs_of(config)
    if pairs is not None:
        return {str(key): value for key, value in islice(pairs, CONFIG_ITEMS_MAX)}
    if isinstance(config, (list, tuple)) and all(
        isinstance(pair, tuple) and len(pair) == 2 for pair in config
    ):
        return {str(key): value for key, value in config}
    if hasattr(config, "__dict__") and not isinstance(config, type):
        return {key: value for key, value in vars(config).items() if not key.startswith("_")}
    return {"config": config}
