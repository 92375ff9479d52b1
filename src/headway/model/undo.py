"""What is half made goes when its making fails, or is interrupted."""

from __future__ import annotations

from collections.abc import Callable


class UndoOnFailure:
    """`with UndoOnFailure(os.close, fd): …`: the call is made when the block raises anything, also
    KeyboardInterrupt, which then goes on.
    """

    def __init__(self, undo: Callable[..., object], *args: object, **named: object) -> None:
        self._undo = undo
        self._args = args
        self._named = named

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is not None:
            self._undo(*self._args, **self._named)
