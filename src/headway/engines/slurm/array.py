"""Many attempts as one batch job: which of them go together, and which is which afterwards. Called
by the engine.

An array's jobs that ask for the same become one `sbatch --array`. Each keeps its own key, folders
and token; Slurm's id of one is `ARRAY_INDEX`. Which key has which index is written down before
sbatch is called, under the array's own key, which is also the comment of the batch job: so an
answer that was lost is found again (F23, F24).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID, uuid5

from headway.engines.protocol import Start
from headway.engines.slurm import script

ELEMENTS_MAX: Final = 1000  # of one sbatch: Slurm's own default is a largest index of 1000
INDEX_MAX: Final = 1000
_SPACE: Final = UUID("6f1c6c0e-6b0e-5a52-9d0c-9c3f0f6f2a11")


@dataclass(frozen=True, slots=True)
class Group:
    key: str
    starts: Mapping[int, Start]  # by the index that Slurm gives it

    @property
    def keys(self) -> dict[str, str]:
        """Index -> key of the attempt, as it is written down."""
        return {str(index): start.key for index, start in self.starts.items()}


def groups_of(starts: Iterable[Start]) -> tuple[list[Group], list[Start]]:
    """What goes together, and what is alone: first attempts of one array that ask Slurm for the
    same.
    """
    alike: dict[tuple[str, ...], list[Start]] = {}
    alone = []
    for start in starts:
        if start.array is None or start.plan.attempt != 1:
            alone.append(start)
        else:
            alike.setdefault((start.array, *script.shape(start.plan)), []).append(start)
    groups = []
    for same in alike.values():
        if len(same) == 1:
            alone += same
        else:
            groups += [
                _group(same[at : at + ELEMENTS_MAX]) for at in range(0, len(same), ELEMENTS_MAX)
            ]
    return groups, alone


def _group(starts: Sequence[Start]) -> Group:
    """Jobs have their own number of the array in Slurm, too, where Slurm can count so far."""
    numbers = [start.index if start.index is not None else -1 for start in starts]
    own = min(numbers) >= 0 and max(numbers) <= INDEX_MAX and len(set(numbers)) == len(numbers)
    by_index = dict(zip(numbers if own else range(len(starts)), starts, strict=True))
    return Group(f"{uuid5(_SPACE, ' '.join(start.key for start in starts))}-1", by_index)


def indices(numbers: Iterable[int]) -> str:
    """`0-2,5,7-8`."""
    return ",".join(
        str(low) if low == high else f"{low}-{high}" for low, high in _runs(sorted(numbers))
    )


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    low = high = numbers[0]
    for number in numbers[1:]:
        if number != high + 1:
            yield low, high
            low = number
        high = number
    yield low, high


@dataclass(slots=True)
class Members:
    """Which attempt is which element: from the notes in the cluster's folder."""

    # key of the array -> index -> key
    by_group: dict[str, dict[str, str]] = field(default_factory=dict)
    # key -> (array's, index), the last one last
    by_key: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def add(self, group: str, keys: Mapping[str, str]) -> None:
        if group in self.by_group:
            return
        self.by_group[group] = dict(keys)
        for index, key in keys.items():
            self.by_key.setdefault(key, []).append((group, index))

    def drop(self, group: str) -> None:
        for key in self.by_group.pop(group, {}).values():
            left = [place for place in self.by_key.get(key, []) if place[0] != group]
            if left:
                self.by_key[key] = left
            else:
                self.by_key.pop(key, None)
