"""How attempts reach Slurm: as one sbatch for an array, and some at a time for the others. Called
by the engine.

Folders are made first, then sbatch is called, then its number is noted. So whatever dies in
between, what was tried before is known by its folder, and what Slurm has of it by the comment of
its batch job (F23, F24).
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from headway.engines.plan import folders_file, task_file
from headway.engines.protocol import EngineId, Given, Plan, PlannedTask, Start
from headway.engines.slurm import array, script
from headway.engines.slurm.job_ids import Ledger
from headway.engines.slurm.parse import JobLine, is_number
from headway.engines.slurm.place import Place
from headway.model.errors import HeadwayError, LaterError, RefusedError, UnreachableError
from headway.model.json_types import JsonObject
from headway.model.limits import SBATCH_AT_ONCE, SBATCH_RUN_MAX

Outcome = EngineId | HeadwayError
FULL_S: Final = 5.0  # so long one that was not taken speaks for those that ask for the same
_KEEP: Final = (
    "SLURM_",
    "SLURMD_",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ROCR_VISIBLE_DEVICES",
)


class Asked(Protocol):
    """Whoever knows what Slurm has."""

    def find(self, key: str) -> EngineId | None: ...
    def ask_again(self) -> None: ...
    def lines(self) -> Mapping[str, JobLine]: ...
    def taken(self, ids: Mapping[str, str]) -> None: ...
    def in_words(self, plan: Plan, error: RefusedError) -> RefusedError: ...


class Submission:
    def __init__(
        self,
        place: Place,
        ledger: Ledger,
        get: Callable[[str], Any],
        asked: Asked,
        clock_s: Callable[[], float],
    ) -> None:
        self._place, self._ledger, self._get, self._asked, self._clock_s = (
            place,
            ledger,
            get,
            asked,
            clock_s,
        )
        self._shelf, self._commands = place.shelf, place.commands
        self._changed = threading.Condition()
        self._keys: set[str] = set()  # that are being submitted
        self._sbatches = threading.Semaphore(SBATCH_AT_ONCE)
        self._full_lock = threading.Lock()  # all threads of a `submit` use it
        # what is asked for -> until when, and why
        self._full: dict[tuple[str, ...], tuple[float, LaterError]] = {}

    def submit(self, starts: Sequence[Start]) -> dict[str, Outcome]:
        """By key. Jobs of one array that ask for the same are one sbatch."""
        keys = {one.key for one in starts}
        with self._changed:  # never two of one key, should a call that hung be repeated
            self._changed.wait_for(lambda: keys.isdisjoint(self._keys))
            self._keys |= keys
        try:
            found = self._tried(sorted(keys))
            return found | self._start([one for one in starts if one.key not in found])
        finally:
            with self._changed:
                self._keys -= keys
                self._changed.notify_all()

    def _tried(self, keys: Sequence[str]) -> dict[str, Outcome]:
        """Of those that were tried before, what has reached Slurm, or may have."""
        tried = [key for key, views in self._shelf.look(keys, False).items() if views]
        if not tried:
            return {}
        self._asked.ask_again()
        try:
            found = {key: self._asked.find(key) for key in tried}
        except UnreachableError as error:
            return dict.fromkeys(tried, error)
        return {key: engine_id for key, engine_id in found.items() if engine_id is not None}

    def _start(self, starts: Sequence[Start]) -> dict[str, Outcome]:
        """Once Slurm has not answered, the rest is not tried: each would wait as long."""
        groups, alone = array.groups_of(starts)
        found: dict[str, Outcome] = {}
        away: list[UnreachableError] = []
        for group in groups:
            try:
                found |= (
                    dict.fromkeys(group.keys.values(), away[0])
                    if away
                    else self._submit_array(group)
                )
            except RefusedError as error:
                # this cluster takes none, or none so long, or not so many more of ours: then as
                # many as it takes
                if isinstance(error, LaterError) or "array" in str(error).lower():
                    self._ledger.drop_array(group.key)
                    alone += group.starts.values()
                else:
                    found |= dict.fromkeys(group.keys.values(), error)
            except UnreachableError as error:
                away.append(error)
                found |= dict.fromkeys(group.keys.values(), error)
        size = max(1, min(SBATCH_RUN_MAX, -(-len(alone) // SBATCH_AT_ONCE)))
        runs = [alone[at : at + size] for at in range(0, len(alone), size)]
        with ThreadPoolExecutor(SBATCH_AT_ONCE, thread_name_prefix="headway-sbatch") as pool:
            for some in pool.map(partial(self._submit_some, away), runs):
                found |= some
        return found

    def _submit_some(
        self, away: list[UnreachableError], some: Sequence[Start]
    ) -> dict[str, Outcome]:
        """Each a batch job of its own, one after the other. Once one is not taken for now, those
        that ask for the same are not tried, and the others are.
        """
        found: dict[str, Outcome] = {}
        shapes = {one.key: script.shape(one.plan) for one in some}
        left = list(some)
        while left:
            full = {
                one.key: why
                for one in left
                if (why := away[0] if away else self._later(shapes[one.key]))
            }
            found |= full
            tried = [one for one in left if one.key not in full]
            told = self._submit_tried(away, tried, shapes) if tried else {}
            found |= told
            left = [
                one
                for one in tried
                if isinstance(told[one.key], LaterError) and not self._later(shapes[one.key])
            ]
        return found

    def _later(self, shape: tuple[str, ...]) -> LaterError | None:
        """Why one that asked for the same was not taken a moment ago."""
        now_s = self._clock_s()
        with self._full_lock:
            self._full = {
                asked: (until_s, why)
                for asked, (until_s, why) in self._full.items()
                if until_s > now_s
            }
            told = self._full.get(shape)
        return told[1] if told else None

    def _submit_tried(
        self,
        away: list[UnreachableError],
        some: Sequence[Start],
        shapes: Mapping[str, tuple[str, ...]],
    ) -> dict[str, Outcome]:
        found: dict[str, Outcome] = {}
        texts: dict[str, str] = {}
        for one in some:
            try:
                self._make_folders([one])
                spool = Path(self._shelf.spool)
                texts[one.key] = script.render(
                    one.plan, one.key, one.plan.options, spool, self._place.agent()
                )
            except HeadwayError as error:
                found[one.key] = error
        numbers = self._sbatch(texts)
        first = next((one for one in some if isinstance(numbers.get(one.key), LaterError)), None)
        if first is not None:  # it speaks for all that ask for the same
            why = self._asked.in_words(first.plan, LaterError(str(numbers[first.key])))
            later = why if isinstance(why, LaterError) else LaterError(str(why))
            with self._full_lock:
                self._full[shapes[first.key]] = (self._clock_s() + FULL_S, later)
            numbers |= {key: later for key, one in numbers.items() if isinstance(one, LaterError)}
        for key, number in numbers.items():
            if isinstance(number, UnreachableError):
                away.append(number)
            elif not isinstance(number, HeadwayError):
                self._ledger.note(key, number)
        self._asked.taken(
            {
                str(number): key
                for key, number in numbers.items()
                if not isinstance(number, HeadwayError)
            }
        )
        return found | numbers

    def _submit_array(self, group: array.Group) -> dict[str, Outcome]:
        self._make_folders(group.starts.values())
        try:
            self._ledger.note_array(group)
        except OSError as error:
            raise self._unwritable(error) from error
        plan = next(iter(group.starts.values())).plan
        spec = array.indices(group.starts)
        spool = Path(self._shelf.spool)
        text = script.render_array(plan, group.key, group.keys, spec, spool, self._place.agent())
        number = self._sbatch({group.key: text})[group.key]
        if isinstance(number, HeadwayError):
            raise number
        self._ledger.note(group.key, number)
        self._asked.taken({f"{number}_{index}": key for index, key in group.keys.items()})
        return {key: EngineId(f"{number}_{index}") for index, key in group.keys.items()}

    # -- folders

    def _make_folders(self, starts: Collection[Start]) -> None:
        try:
            for one in starts:
                self._place.carry(one.plan)
            self._shelf.make_all(
                (
                    f"{one.key}-{task.name}",
                    self._task_file(one.plan, task, one.given),
                    one.given.env,
                )
                for one in starts
                for task in one.plan.tasks
            )
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> UnreachableError:
        return UnreachableError(f"the shared folder {self._shelf.spool} cannot be written: {error}")

    def _task_file(self, plan: Plan, task: PlannedTask, given: Given) -> JsonObject:
        return task_file(
            plan, task, given, address="", spool_bytes_max=self._get("spool_bytes_max"), keep_env=list(_KEEP),
            carried=folders_file(plan, given, Path(self._shelf.home) / "folders", self._get),
            signals_all=True,
            **{"tls": dict(given.tls) if given.tls else None, **self._place.task_fields(plan)},
        )  # fmt: skip

    # -- sbatch

    def _sbatch(self, texts: Mapping[str, str]) -> dict[str, Outcome]:
        """By key, the number that Slurm has given to a script, or why it has not."""
        with self._sbatches:
            said = self._commands.run_each(["sbatch", "--parsable"], list(texts.values()))
        if any(isinstance(one, RefusedError) for one in said):
            self._asked.ask_again()
        found: dict[str, Outcome] = {}
        for key, one in zip(texts, said, strict=True):
            try:
                found[key] = self._number_in(one, key)
            except HeadwayError as error:
                found[key] = error
        return found

    def _number_in(self, said: str | HeadwayError, key: str) -> EngineId:
        if isinstance(said, RefusedError):
            mine = script.comment(key)
            lines = self._asked.lines().values()
            found = next(
                (line.id.partition("_")[0] for line in lines if line.comment == mine), None
            )
            if found is not None:
                return EngineId(found)  # whatever it said: Slurm has it
        if isinstance(said, HeadwayError):
            raise said
        number = said.strip().splitlines()[-1].partition(";")[0] if said.strip() else ""
        if not is_number(number):
            raise UnreachableError(
                f"sbatch answered {said.strip()[:200]!r}, which is not the number of a job"
            )
        return EngineId(number)
