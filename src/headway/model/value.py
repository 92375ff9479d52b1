"""`Value`: a small frozen record, as `dataclass(frozen=True)` makes one, without its price at
start.

Defining a dataclass takes about half a millisecond and loading `dataclasses` twenty, which the
agent and the client pay each time a command is run. Types are checked as for a dataclass; mutable
defaults must not be used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` itself takes some milliseconds to load
if TYPE_CHECKING:
    from typing import ClassVar, dataclass_transform
else:

    def dataclass_transform(**_):
        return lambda cls: cls


@dataclass_transform(frozen_default=True)
class Value:
    """Fields are the annotations of the class, in order; a class attribute of the same name is the
    default.
    """

    _fields: "ClassVar[tuple[str, ...]]" = ()

    def __init_subclass__(cls) -> None:
        cls._fields = (*cls._fields, *cls.__annotations__)

    def __init__(self, *args: object, **named: object) -> None:
        fields = self._fields
        values = dict(zip(fields, args))
        values.update(named)
        for name in fields[len(args) :]:
            if name not in values:
                values[name] = self._default(name)
        if len(args) > len(fields) or len(values) != len(fields):
            raise TypeError(
                f"{type(self).__name__} has the fields {', '.join(fields)}; got {args!r} and {named!r}"
            )
        self.__dict__.update(values)

    @classmethod
    def _default(cls, name: str) -> object:
        try:
            return getattr(cls, name)
        except AttributeError:
            raise TypeError(f"{cls.__name__} needs {name}") from None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"
