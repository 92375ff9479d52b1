"""What control remembers of each attempt between two looks; nothing of it is stored. A server that
was restarted begins with nothing, and finds out again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from headway.wire.batch import TaskKey


@dataclass(slots=True)
class AttemptState:
    """Times are of the monotonic clock; None: never."""

    heard_s: float | None = None  # when one of its agents last spoke
    cancelled_s: float | None = None  # when its engine or its agents were last asked to stop it
    stopping_s: float | None = None  # since when its engine does not answer to a stop
    launches: int = 0
    told_s: dict[tuple[str, str], float] = field(default_factory=dict)  # (task, command) -> when


class AttemptStates:
    """By the key of the attempt. `heard` may come from any thread."""

    def __init__(self) -> None:
        self._by_key: dict[str, AttemptState] = {}
        # engines' own words for the state, by job and attempt; not flushed yet
        self.words: dict[tuple[int, int], str] = {}

    def of(self, key: str) -> AttemptState:
        return self._by_key.setdefault(key, AttemptState())

    def find(self, key: str) -> AttemptState | None:
        return self._by_key.get(key)

    def items(self) -> Iterator[tuple[str, AttemptState]]:
        yield from list(self._by_key.items())

    def end(self, key: str) -> None:
        """It is over: nothing more is started or stopped. Its agents may still be heard."""
        state = self._by_key.get(key)
        if state is not None:
            state.cancelled_s = state.stopping_s = None
            state.launches = 0

    def forget(self, task: TaskKey) -> None:
        """Nothing will come from this task any more."""
        key = f"{task.uuid}-{task.attempt}"
        state = self._by_key.get(key)
        if state is None:
            return
        for told in [told for told in state.told_s if told[0] == task.task]:
            del state.told_s[told]
        state.heard_s = None
        if state == AttemptState():
            del self._by_key[key]
