"""Which attempt is which batch job, or which element of one: from notes in the cluster's folder.
For the engine.
"""

from collections.abc import Iterable, Mapping

from headway.engines.protocol import EngineId
from headway.engines.slurm import array, script
from headway.engines.slurm.place import AnyShelf
from headway.engines.spool import task_folder as folders
from headway.model.errors import UnreachableError


class Ledger:
    def __init__(self, shelf: AnyShelf) -> None:
        self._shelf = shelf
        self._keys: dict[str, str] = {}  # Slurm's id -> key
        # key -> Slurm's id, of those that this server has submitted or found
        self._ids: dict[str, EngineId] = {}
        self._members, self._members_read = array.Members(), False

    def note(self, key: str, number: str) -> None:
        """The number of a batch job, alone or an array's."""
        self.learn({number: key})
        try:
            self._shelf.remember(key, number)
        except (OSError, UnreachableError):
            pass  # Slurm itself knows it by its comment

    def learn(self, ids: Mapping[str, str]) -> None:
        """Slurm's id -> key."""
        self._keys.update(ids)
        self._ids.update((key, EngineId(number)) for number, key in ids.items())

    def note_array(self, group: array.Group) -> None:
        """Before sbatch is called. Raises OSError."""
        self._shelf.note_array(group.key, group.keys)
        self._members.add(group.key, group.keys)

    def drop_array(self, key: str) -> None:
        """Slurm has not taken it."""
        self._members.drop(key)
        self._shelf.forget(key)

    def _arrays(self) -> array.Members:
        """What this server has not submitted itself is read once."""
        if not self._members_read:
            for key, members in self._shelf.arrays().items():
                self._members.add(key, members)
            self._members_read = True
        return self._members

    def places(self, key: str) -> list[tuple[str, str]]:
        """Where an attempt may be: the key of a batch job, and which element of it; nothing: it is
        the batch job.
        """
        return [(key, ""), *reversed(self._arrays().by_key.get(key, []))]

    def comments(self, key: str) -> list[str]:
        return [script.comment(own) for own, _ in self.places(key)]

    def find(self, key: str) -> EngineId | None:
        """By what was noted of it."""
        if key in self._ids:
            return self._ids[key]
        for own, index in self.places(key):
            if number := self._shelf.id_of(own):
                return self._is(key, number, index)
        return None

    def find_among(self, key: str, numbers: Mapping[str, str]) -> EngineId | None:
        """By the comments that Slurm keeps: comment -> number of the batch job."""
        for own, index in self.places(key):
            if number := numbers.get(script.comment(own)):
                self.note(own, number)
                return self._is(key, number, index)
        return None

    def _is(self, key: str, number: str, index: str) -> EngineId:
        found = EngineId(f"{number}_{index}" if index else number)
        self.learn({found: key})
        return found

    def key_of(self, job_id: str) -> str | None:
        """After a restart: from the files that `submit` left."""
        whole, _, index = job_id.partition("_")
        if job_id not in self._keys and whole not in self._keys:
            self._keys |= {number: key for key, number in self._shelf.ids().items()}
        if index and job_id not in self._keys:
            key = self._arrays().by_group.get(self._keys.get(whole, ""), {}).get(index)
            if key is not None:
                self._keys[job_id] = key
        return self._keys.get(job_id)

    def output_of(self, job_id: str) -> str:
        """What the file is called, without its ending, into which its batch script prints; empty:
        not known.
        """
        whole, _, index = job_id.partition("_")
        key = self.key_of(job_id)
        return f"{self._keys[whole]}_{index}" if index and whole in self._keys else key or ""

    def known_id(self, key: str) -> str | None:
        """Slurm's id, where it is known without asking or reading."""
        return self._ids.get(key) or next(
            (number for number, known in self._keys.items() if known == key), None
        )

    def forget(self, key: str) -> None:
        """The attempt is over; an array is forgotten with the last of its jobs."""
        self._shelf.forget(key)
        groups = [group for group, _ in self._arrays().by_key.get(key, [])]
        left = _keys_of(self._shelf.tasks()) if groups else set()
        for group in groups:
            if not left & set(self._members.by_group[group].values()):
                self._shelf.forget(group)
                self._members.drop(group)


def _keys_of(names: Iterable[str]) -> set[str]:
    return {match["key"] for name in names if (match := folders.ID.match(name))}
