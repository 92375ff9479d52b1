"""`wandb.config` and `wandb.summary`: attribute and item, as wandb has them, kept in `hw.config` and `hw.summary`."""

import os

TYPE_CHECKING = False  # `typing` itself costs a cold start some milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from headway.model.json_types import JsonObject


class _Items:
    """Reading, by attribute and by item; how it is written is the class's own."""

    _items: "JsonObject"

    def __getattr__(self, name: str) -> "Any":
        try:
            return self._items[name]
        except KeyError:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}"
            ) from None

    def __getitem__(self, name: str) -> "Any":
        return self._items[name]

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> "Iterator[str]":
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return repr(self._items)

    def get(self, name: str, default: object = None) -> "Any":
        return self._items.get(name, default)

    def keys(self) -> "Any":
        return self._items.keys()

    def values(self) -> "Any":
        return self._items.values()

    def items(self) -> "Any":
        return self._items.items()

    def __setattr__(self, name: str, value: object) -> None:
        self.update({name: value})

    def __setitem__(self, name: str, value: object) -> None:
        self.update({name: value})

    def update(self, values: "Any" = None, **more: "Any") -> None:
        raise NotImplementedError


class Config(_Items):
    """Every change is told at once. What a sweep has set wins over what the script says."""

    def __init__(self, tell: "Callable[[JsonObject], None]") -> None:
        object.__setattr__(self, "_items", {})
        object.__setattr__(self, "_fixed", {})
        object.__setattr__(self, "_tell", tell)

    def as_dict(self) -> "JsonObject":
        return dict(self._items)

    # -- writing ----

    def __delattr__(self, name: str) -> None:
        del self[name]

    def __delitem__(self, name: str) -> None:
        del self._items[name]
        self._tell(self._items)

    def update(
        self, values: object = None, allow_val_change: "bool | None" = None, **more: object
    ) -> None:
        self._items.update(parse_config(values))
        self._items.update(more)
        self._items.update(self._fixed)
        self._tell(self._items)

    def update_locked(
        self, values: object, user: object = None, _allow_val_change: object = None
    ) -> None:
        self._fixed.update(parse_config(values))
        self.update()

    def setdefaults(self, values: object) -> None:
        for name, value in parse_config(values).items():
            self._items.setdefault(name, value)
        self._tell(self._items)

    def setdefault(self, name: str, value: object = None) -> "Any":
        self.setdefaults({name: value})
        return self._items[name]

    def persist(self) -> None:
        self._tell(self._items)


def parse_config(
    values: object, include: "Iterable[str] | None" = None, exclude: "Iterable[str] | None" = None
) -> "JsonObject":
    """A dictionary, a namespace, absl flags, the path of a YAML file, or anything with fields."""
    found = _as_dict(values)
    if include:
        wanted = set(include)
        found = {name: value for name, value in found.items() if name in wanted}
    if exclude:
        unwanted = set(exclude)
        found = {name: value for name, value in found.items() if name not in unwanted}
    return found


def _as_dict(values: object) -> "JsonObject":
    if values is None:
        return {}
    if isinstance(values, str | os.PathLike):
        from headway.client.config_file import read_config

        return {
            name: unwrap(value)
            for name, value in read_config(os.fspath(values)).items()
            if name != "wandb_version"
        }
    if isinstance(values, Config):
        return values.as_dict()
    from headway.client.config import as_dict

    return as_dict(values)


def unwrap(value: object) -> "Any":
    """wandb's own files have `{desc: …, value: …}` in place of each value."""
    if isinstance(value, dict) and "value" in value and set(value) <= {"desc", "value"}:
        return value["value"]
    return value


class Summary(_Items):
    """`run.summary["acc"] = 0.9`, `run.summary.acc`, `run.summary.update({...})`; the last logged values are in it."""

    def __init__(self, tell: "Callable[[JsonObject], None]") -> None:
        object.__setattr__(self, "_items", {})
        object.__setattr__(self, "_tell", tell)

    def _logged(self, values: "JsonObject") -> None:
        self._items.update(values)

    def __delitem__(self, name: str) -> None:
        del self._items[name]
        self._tell({name: None})

    def _as_dict(self) -> "JsonObject":
        return dict(self._items)

    def update(self, values: "Any" = None, **more: "Any") -> None:
        changed = {**dict(values or {}), **more}
        self._items.update(changed)
        self._tell(changed)
