"""The Slurm engine: an attempt is one batch job with one shim per node. Called by
`server/control/loop.py`, from threads.

Where Slurm's commands run and where files lie is one `Place`: here, or on a login node over ssh
(`place.py`). Slurm is asked once for all jobs, and less often while nothing changes; what a job
says itself comes through its agent and is believed first. Same key, same job: the key is the batch
job's comment, so an answer of sbatch that was lost is found again (F24), and a shim refuses to
start where one has started before.
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from headway.engines.plan import plan_of, tasks_of
from headway.engines.protocol import (
    AnyBox,
    EngineId,
    Freed,
    Given,
    Node,
    Observation,
    Plan,
    Start,
    Waiting,
)
from headway.engines.slurm import end_cause, parse, partition, requeue, script
from headway.engines.slurm.commands import TIMEOUT_S, Commands
from headway.engines.slurm.id_reuse import Owner, has_other_name
from headway.engines.slurm.job_details import Records
from headway.engines.slurm.job_ids import Ledger
from headway.engines.slurm.parse import JobLine
from headway.engines.slurm.place import Place, place_for
from headway.engines.slurm.python_check import Library
from headway.engines.slurm.refusal import Wording
from headway.engines.slurm.sbatch import Submission
from headway.engines.slurm.test_only import Trial
from headway.engines.slurm.why import explain, suggest
from headway.engines.spool import task_folder as folders
from headway.engines.spool import task_group
from headway.engines.spool.cluster_folder import TaskView
from headway.home.launch import agent_argv
from headway.home.paths import Paths
from headway.model.errors import HeadwayError, LaterError, RefusedError, UnreachableError
from headway.model.job import Job
from headway.model.json_types import JsonMapping, JsonObject
from headway.model.limits import SALVAGE_ENDED_S, SALVAGE_SILENT_S
from headway.wire.batch import TaskKey

POLL_FIRST_S: Final = 1.0
POLL_MAX_S: Final = 15.0
NODES_KEPT_S: Final = 30.0
NODES_ASKED_S: Final = 4.0  # by somebody who submits and waits, where what was told last will do
NODES_FRESH_S: Final = 5.0  # what was told so long ago still tells whether a node answers
KNOWN_KEPT_S: Final = 3600.0
CANCELS_AT_ONCE: Final = 500
KILL_AFTER_S: Final = 2.0  # beyond the grace time, in which the shim itself kills


class SlurmEngine:
    name = "slurm"
    queues = True

    def __init__(
        self,
        cluster: str,
        paths: Paths,
        get: Callable[[str], Any],
        definition: JsonMapping,
        *,
        argv: Callable[..., list[str]] = agent_argv,
        commands: Commands | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cluster, self.paths, self._get, self._options = cluster, paths, get, dict(definition)
        self._place: Place = place_for(cluster, paths, self._options, argv, commands)
        self._commands, self._shelf, self._clock_s = (
            self._place.commands,
            self._place.shelf,
            clock_s,
        )
        self._records = Records(self._commands, clock_s)
        self._library = Library(self._commands)
        self._lock = threading.Lock()
        self._lines: dict[str, JobLine] = {}  # the last answer of squeue
        self._garbled = False  # it had lines that cannot be read
        self._polled_s = -POLL_MAX_S
        self._poll_s = POLL_FIRST_S
        self._ledger = Ledger(self._shelf)
        self._submission = Submission(self._place, self._ledger, get, self, clock_s)
        self._trial = Trial(self._commands, self.in_words, clock_s)
        self._owner = Owner(self._ledger, self._records)
        self._begun: set[str] = set()  # Slurm's ids of jobs of which an agent has started
        # what Slurm has told of those that are over; asked for once
        self._ended: dict[str, JobLine] = {}
        self._taken: dict[str, JsonObject] = {}  # why Slurm has taken a start back, by its id
        self._asked_s: dict[str, float] = {}  # when an id was asked to stop gently
        self._known_s: dict[str, float] = {}  # Slurm's id -> when Slurm last knew it
        self._lost: set[str] = set()  # keys of jobs that Slurm took and then lost
        self._min_age_s: float | None = None  # how long Slurm remembers an ended job
        self._down: dict[str, list[str]] = {}  # Slurm's id -> those of its nodes that failed it
        self._silence = end_cause.Silence()
        # Slurm's id -> whether the daemons of its nodes have told its end
        self._proven: dict[str, bool] = {}
        self._nodes: tuple[float, list[parse.NodeLine]] = (-NODES_KEPT_S, [])
        self._known_partitions: tuple[float, list[partition.Partition]] = (-NODES_KEPT_S, [])

    @property
    def spool(self) -> Path:
        return Path(self._shelf.spool)

    @property
    def tray(self) -> Path | AnyBox | None:
        return self._place.tray

    def readdress(self, tls: JsonMapping | None) -> int:
        return self._place.readdress(tls)

    def collect(self, open_jobs: Sequence[str], *, dry_run: bool) -> Freed | None:
        if not self._place.is_apart:
            return None
        return Freed(*self._shelf.collect(open_jobs, dry_run))

    # -- planning

    def capacity(self) -> list[Node]:
        self._place.check()
        nodes = self._nodes_of(self._options.get("partition"))
        partition.check_names(self._all_partitions(), self._options.get("partition"))
        return [suggest.capacity_of(node) for node in nodes]

    def capacity_now(self) -> list[Node]:
        # what was told stays known: a plan needs it while Slurm does not answer
        long_ago_s = -NODES_KEPT_S
        self._nodes, self._known_partitions = (
            (long_ago_s, self._nodes[1]),
            (long_ago_s, self._known_partitions[1]),
        )
        return self.capacity()

    def queue_words(self) -> str:
        """The whole queue of the partition, whoever's jobs they are."""
        asked = self._options.get("partition")
        where = ["-p", str(asked)] if asked else []
        said = self._commands.run(["squeue", "-h", "-t", "R,PD", *where, "-o", "%T"]).split()
        closed = [
            f"; partition {one.name} is {one.state}"
            for one in self._partitions(asked)
            if not one.is_open
        ]
        return f"of all users {said.count('RUNNING')} run and {said.count('PENDING')} wait{''.join(closed)}"

    def _partitions(self, asked: str | None) -> list[partition.Partition]:
        return partition.chosen(self._all_partitions(), asked)

    def _all_partitions(self) -> list[partition.Partition]:
        """Asked for now and then. Empty: Slurm does not tell them."""
        asked_s, known = self._known_partitions
        if self._clock_s() - asked_s >= NODES_KEPT_S:
            try:
                known = partition.read(
                    self._commands.run(["scontrol", "show", "partition", "-a", "-o"])
                )
            except RefusedError:
                known = []
            except UnreachableError:
                pass  # nothing is refused by what is not known
            self._known_partitions = (self._clock_s(), known)
        return known

    def _nodes_of(self, asked: str | None, timeout_s: float = TIMEOUT_S) -> list[parse.NodeLine]:
        """The nodes of a partition, of several, or of the default; asked for now and then."""
        asked_s, nodes = self._nodes
        if self._clock_s() - asked_s >= NODES_KEPT_S:
            nodes = parse.read_nodes(
                self._commands.run(["scontrol", "show", "node", "-d", "-o"], timeout_s=timeout_s)
            )
            self._nodes = (self._clock_s(), nodes)
        names = asked.split(",") if asked else [one.name for one in self._partitions(None)]
        return [node for node in nodes if not names or set(names) & set(node.partitions)]

    def _nodes_or_old(self, asked: str | None) -> list[parse.NodeLine]:
        """For a plan: while Slurm does not answer, what it said last will do, so that new jobs are
        taken and wait.
        """
        try:
            return self._nodes_of(asked, NODES_ASKED_S if self._nodes[1] else TIMEOUT_S)
        except UnreachableError:
            if not self._nodes[1]:
                raise
            self._trial.away()
            now_s = self._clock_s()
            self._nodes, self._known_partitions = (
                (now_s, self._nodes[1]),
                (now_s, self._known_partitions[1]),
            )
            return self._nodes_of(asked)

    def plan(self, job: Job, attempt: int = 1) -> Plan:
        spec, options = job.spec, self._asked(job)
        asked = options.get("partition")
        nodes = self._nodes_or_old(asked)
        partition.check_names(self._all_partitions(), asked)
        # not known: as the roles say
        has_gpus = any(node.gpus for node in nodes) or (bool(spec.roles) and not nodes)
        per_node = (
            self._options.get("gpu_per_node")
            or max((node.gpus for node in nodes), default=0)
            or None
        )
        tasks = tasks_of(spec, gpu_per_node=per_node, has_gpus=has_gpus)
        plan = plan_of(self.name, self.cluster, job, attempt, tasks, rlimits={}, options=options)
        suggest.check_ever(plan, nodes)
        self._library.check(
            plan.folders, self._place.agent()[0], self._options.get("host") or "this machine"
        )
        plan = partition.check(plan, self._partitions(asked), self._would_take)
        text = script.render(
            plan, f"{plan.uuid}-{attempt}", plan.options, self.spool, self._place.agent()
        )
        if not job.pk:  # it is not stored yet, so somebody can be told
            self._trial.check(plan, text, partial(self._fresh_nodes, asked))
        return replace(plan, script=text)

    def _would_take(self, plan: Plan) -> bool:
        """Slurm itself is asked, where a limit seems to be against it: a QoS may set it aside.
        Nothing is submitted.
        """
        text = script.render(plan, f"{plan.uuid}-0", plan.options, self.spool, self._place.agent())
        try:
            self._commands.run(["sbatch", "--test-only"], text)
        except LaterError:
            return True
        except RefusedError:
            return False
        return True

    def in_words(
        self, plan: Plan, error: RefusedError, nodes: Sequence[parse.NodeLine] = ()
    ) -> RefusedError:
        """A refusal with what was asked for and what there is."""
        return Wording(partial(explain.ask, self._commands), self._place.uid).of(plan, error, nodes)

    def _asked(self, job: Job) -> JsonObject:
        """The cluster's options under the job's own; nodes that have failed it are left out from
        now on.
        """
        options = {**self._options, **job.spec.options}
        exclude = [*filter(None, [options.get("exclude")]), *job.avoided()]
        return {**options, "exclude": ",".join(exclude) or None}

    # -- starting

    def submit(self, plan: Plan, key: str, given: Given) -> EngineId:
        found = self.submit_many([Start(plan, key, given)])[key]
        if isinstance(found, HeadwayError):
            raise found
        return found

    def submit_many(self, starts: Sequence[Start]) -> dict[str, EngineId | HeadwayError]:
        return self._submission.submit(starts)

    def taken(self, ids: Mapping[str, str]) -> None:
        """Slurm has them: by its id, the key."""
        self._forget(ids)
        self._ledger.learn(ids)
        with self._lock:
            self._known_s |= dict.fromkeys(ids, self._clock_s())
        self._lost.difference_update(ids.values())
        self._soon_again()

    def _forget(self, ids: Iterable[str]) -> None:
        """What was seen under these numbers is over: a controller that lost a job gives its number
        to the next one.
        """
        kept: Sequence[JsonObject] = (
            self._taken,
            self._ended,
            self._asked_s,
            self._down,
            self._proven,
        )
        for job_id in ids:
            self._begun.discard(job_id)
            for seen in kept:
                seen.pop(job_id, None)

    def find(self, key: str) -> EngineId | None:
        """By the file that `submit` left, or else by the comment that Slurm keeps: alone, or as a
        part of an array.
        """
        found = None if key in self._lost else self._ledger.find(key)
        if found is None:
            self._soon_again()
            numbers = {line.comment: line.id.partition("_")[0] for line in self.lines().values()}
            found = self._ledger.find_among(key, numbers)
            # it may be in what cannot be read: never a second job (F24)
            if found is None and self._garbled:
                raise UnreachableError(
                    "squeue's answer cannot be read, so nothing is known of jobs that are not in it"
                )
            self._forget([found] if found else [])
        return found

    # -- looking

    def ask_again(self) -> None:
        """Something was changed: the next look asks Slurm."""
        self._poll_s = POLL_FIRST_S
        self._polled_s = -POLL_MAX_S

    def _soon_again(self) -> None:
        """As `ask_again`, for questions that come in hundreds: what was asked in the last moment
        will do.
        """
        self._poll_s = POLL_FIRST_S

    def due_s(self) -> float:
        return max(0.0, self._polled_s + self._poll_s - self._clock_s())

    def lines(self) -> dict[str, JobLine]:
        """One question for all jobs of this user; asked less often while its answer stays the same."""
        with self._lock:
            if self._clock_s() - self._polled_s < self._poll_s:
                return self._lines
            said = self._list_jobs()
            lines = parse.read_squeue(said)
            self._garbled = len(lines) < sum(1 for text in parse.lines_of(said) if text.strip())
            same = {i: line.word for i, line in lines.items()} == {
                i: line.word for i, line in self._lines.items()
            }
            self._poll_s = min(POLL_MAX_S, self._poll_s * 1.5) if same else POLL_FIRST_S
            self._lines, self._polled_s = lines, self._clock_s()
            recent_s = {i: s for i, s in self._known_s.items() if self._polled_s - s < KNOWN_KEPT_S}
            self._known_s = recent_s | dict.fromkeys(lines, self._polled_s)
            return lines

    def _list_jobs(self) -> str:
        argv = ["squeue", "-h", "-r", "-t", "all", "--me", "-o", parse.SQUEUE_FORMAT]
        try:
            try:
                return self._commands.run(argv)
            except RefusedError:  # `--me` came with Slurm 20.02
                return self._commands.run([*argv[:5], "-u", str(self._place.uid), *argv[6:]])
        # a question is not a request: why it fails does not matter, nothing is known
        except RefusedError as error:
            raise UnreachableError(f"which jobs there are is not known: {error}") from None

    def observe(self, ids: Sequence[EngineId]) -> dict[EngineId, Observation]:
        if self._place.trouble():
            try:
                self._place.check()
            except UnreachableError as error:  # nothing follows from it, but it is shown
                return dict.fromkeys(ids, Observation("unknown", str(error)))
        lines = self.lines()
        told = self._asked_more(ids, lines)
        over = [
            i
            for i, line in told.items()
            if line is None or (isinstance(line, JobLine) and self._is_over(i, line))
        ]
        fresh = [
            i for i, line in told.items() if isinstance(line, JobLine) and line.state == "running"
        ]
        views = self._look([i for i in fresh if i not in self._begun], whole=False) | self._look(
            over, whole=True
        )
        for i, line in told.items():
            if isinstance(line, JobLine) and has_other_name(line, views.get(i, {})):
                told[i] = None
        return {
            i: line if isinstance(line, Observation) else self._seen(i, line, views.get(i, {}))
            for i, line in told.items()
        }

    def _asked_more(
        self, ids: Sequence[EngineId], lines: Mapping[str, JobLine]
    ) -> dict[EngineId, JobLine | Observation | None]:
        """What Slurm says of each; of those that squeue does not tell enough of, others are asked,
        all at once.
        """
        found: dict[EngineId, JobLine | Observation | None] = {
            i: self._own(i, lines.get(i)) for i in ids
        }
        found |= {i: over for i in ids if (over := self._ended.get(i))}
        found |= {i: JobLine(i, "PENDING") for i in ids if found[i] is None and self._is_newer(i)}
        unclear = [
            i for i, line in found.items()
            if i not in self._ended and not isinstance(line, Observation)
            and (line is None or line.state == "unknown" or self._is_over(i, line))
        ]  # fmt: skip
        if unclear:
            try:
                told = self._records.ask(unclear)
                more = {i: told.get(i) if found[i] else self._own(i, told.get(i)) for i in unclear}
                ours = {i: line for i, line in more.items() if isinstance(line, JobLine)}
                self._ended |= {i: line for i, line in ours.items() if line.state == "ended"}
                found |= {i: more.get(i) or found[i] or self._taken_out(i, lines) for i in unclear}
            except UnreachableError as error:
                found |= {i: Observation("unknown", str(error)) for i in unclear}
        for i, line in found.items():
            if isinstance(line, JobLine) and line.word == "CANCELLED" and line.by_uid is None:
                found[i] = replace(line, by_uid=self._records.who_cancelled(i))
        return found

    def _is_over(self, job_id: str, line: JobLine) -> bool:
        return line.state == "ended" or requeue.is_back(line, job_id in self._begun)

    def _is_newer(self, job_id: str) -> bool:
        """Slurm has taken it since it was last asked."""
        return self._known_s.get(job_id, -POLL_MAX_S) > self._polled_s

    def _taken_out(self, job_id: str, lines: Mapping[str, JobLine]) -> JobLine | None:
        """Slurm keeps nothing of an element that was cancelled while it waited, but for the array
        itself.
        """
        whole, _, index = job_id.partition("_")
        mine = self._ledger.comments(self._ledger.key_of(job_id) or "")
        rest = index and any(
            i.partition("_")[0] == whole and line.comment in mine for i, line in lines.items()
        )
        return JobLine(job_id, "CANCELLED", "while it waited in its array") if rest else None

    def _own(self, job_id: str, line: JobLine | None) -> JobLine | Observation | None:
        """What Slurm says of our job; nothing, where its number means another one by now."""
        try:
            return None if line is None or self._owner.is_another(job_id, line) else line
        except UnreachableError as error:
            return Observation("unknown", str(error))

    def _is_lost(self, job_id: str) -> bool:
        """Slurm took it, and lost it when its controller died before it had saved that: a job that
        ended, or that somebody cancelled, would still be known. Where that is not sure, it may have
        been cancelled.
        """
        known_s = self._known_s.get(job_id)
        if known_s is None:
            return False
        if self._min_age_s is None:
            self._min_age_s = parse.read_min_age_s(
                self._commands.run(["scontrol", "show", "config"])
            )
        return self._clock_s() - known_s < self._min_age_s

    def _look(self, ids: Sequence[str], *, whole: bool) -> dict[str, dict[str, TaskView]]:
        """Their tasks' folders, by Slurm's id and the folder's name."""
        keys = {key: job_id for job_id in ids if (key := self._ledger.key_of(job_id))}
        if not keys:
            return {}
        printed = (
            {key: self._ledger.output_of(job_id) for key, job_id in keys.items()} if whole else {}
        )
        return {
            keys[key]: found for key, found in self._shelf.look(list(keys), whole, printed).items()
        }

    def _seen(
        self, job_id: str, line: JobLine | None, views: Mapping[str, TaskView]
    ) -> Observation:
        if line is None:
            return self._forgotten(job_id, views)
        word = f"{line.word} ({line.reason})" if line.reason else line.word
        if self._is_over(job_id, line):
            return self._after(job_id, word, line, views)
        if line.state == "running":
            if not views or any(view.begun for view in views.values()):
                self._begun.add(job_id)
            if job_id in self._begun:
                return Observation("running", word, {"started": True, "nodes": line.nodes})
        if line.state in ("starting", "running"):
            return Observation("starting", word, {"started": None, "nodes": line.nodes})
        return Observation("unknown", word)

    def _forgotten(self, job_id: str, views: Mapping[str, TaskView]) -> Observation:
        seen = self._after(job_id, "no longer known to Slurm", None, views)
        key = self._ledger.key_of(job_id)
        if key is None or seen.detail.get("started") is not False:
            return replace(seen, detail={**seen.detail, "end": end_cause.FORGOTTEN})
        try:
            lost = key in self._lost or self._is_lost(job_id)
        except HeadwayError as error:
            return Observation("unknown", str(error))
        if not lost:
            return replace(
                seen,
                state_word="no longer known to Slurm: cancelled there, or lost by its controller",
            )
        self._lost.add(key)  # it will not run, so it can be submitted again
        return replace(seen, state_word="lost by Slurm's controller")

    def _after(
        self, job_id: str, word: str, line: JobLine | None, views: Mapping[str, TaskView]
    ) -> Observation:
        """Slurm is done with it. What its agents wrote tells the rest."""
        taken = {} if line is None else self._taken_back(job_id, line, views)
        end = taken or (
            {} if line is None else end_cause.told(line, self._failed_nodes(line), self._place.user)
        )
        one = Observation("gone", word, {"started": None})
        if views:
            one = task_group.join(self._tasks_after(word, line, views))
        key = self._ledger.key_of(job_id)
        if one.detail.get("drained"):
            self._tidy(views)
        if key and (not views or one.detail.get("drained")) and not self._place.finish(key):
            # its outputs are on their way
            one = Observation("ended", word, {"started": one.detail.get("started")})
        if (
            taken
            and line is not None
            and line.state == "starting"
            and one.state in ("ended", "gone")
        ):
            self._withdraw(job_id)
        if key and line is not None and not taken:
            end = self._end_with_output(job_id, line, end, started=one.detail.get("started"))
        return replace(
            one,
            state_word=one.state_word if one.state == "unknown" else word,
            detail={**one.detail, **end},
        )

    def _end_with_output(
        self, job_id: str, line: JobLine, end: JsonObject, *, started: bool | None
    ) -> JsonObject:
        """With what the batch script's own output tells, where no agent could tell it."""
        if started is not False and not end_cause.was_killed(line):
            return end
        said = self._shelf.said(self._ledger.output_of(job_id))
        by_memory = end_cause.of_memory(end, said, line)
        if by_memory is end and started is False:
            return end_cause.with_words(end, said)
        return by_memory

    def _taken_back(self, job_id: str, line: JobLine, views: Mapping[str, TaskView]) -> JsonObject:
        """Told from its folders, which go when all of them is sent: so it is kept."""
        if job_id not in self._taken and (
            end := requeue.end_of(line, job_id in self._begun, views.values())
        ):
            self._taken[job_id] = end
        return self._taken.get(job_id, {})

    def _withdraw(self, job_id: str) -> None:
        """Slurm would start it a second time, and its tasks would not begin again."""
        with contextlib.suppress(HeadwayError):  # then the shims refuse it
            self._commands.run(["scancel", job_id])
        self.ask_again()

    def _tasks_after(
        self, word: str, line: JobLine | None, views: Mapping[str, TaskView]
    ) -> dict[str, Observation]:
        """Of agents on other machines, how long they have been silent counts, too."""
        now_s, limit_s = self._clock_s(), SALVAGE_SILENT_S
        if (
            line is not None
            and any(view.elsewhere for view in views.values())
            and self._saw_end(line)
        ):
            limit_s = SALVAGE_ENDED_S
        return {
            name: end_cause.of_task(view, word, self._silence.quiet_s(name, view, now_s), limit_s)
            for name, view in views.items()
        }

    def _tidy(self, views: Mapping[str, TaskView]) -> None:
        """All of it is sent. An agent removes its own folder; that of one which was taken over
        stays until now.
        """
        self._silence.forget(views)
        if left := [name for name, view in views.items() if view.taken]:
            self._shelf.remove(left)

    def _saw_end(self, line: JobLine) -> bool:
        """Whether the daemons of all its nodes have told Slurm that nothing of it runs; asked once."""
        names = parse.expand_hosts(line.nodes)
        if line.word in end_cause.NODE_LOST or not names:
            return False
        if line.id not in self._proven:
            try:
                fresh = self._clock_s() - self._nodes[0] <= NODES_FRESH_S
                nodes = (
                    self._nodes_of(self._options.get("partition")) if fresh else self._fresh_nodes()
                )
            except HeadwayError:
                return False
            self._proven[line.id] = {node.name for node in nodes if node.responds}.issuperset(names)
        return self._proven[line.id]

    def _failed_nodes(self, line: JobLine) -> list[str]:
        """Of a job that lost a node: those that are down, asked for once; all of its nodes where
        none is any more.
        """
        names = parse.expand_hosts(line.nodes)
        if line.word not in end_cause.NODE_LOST or len(names) < 2:
            return names
        if line.id not in self._down:
            try:
                nodes = self._fresh_nodes()
            except HeadwayError:
                return names
            down = {node.name for node in nodes if not node.is_usable}
            failed = [name for name in names if name in down]
            self._down[line.id] = failed or names
        return self._down[line.id]

    # -- why it waits

    def explain(self, engine_id: EngineId) -> Waiting:
        self.ask_again()
        line = self._records.ask([engine_id]).get(engine_id) or self.lines().get(engine_id)
        if line is None or self._owner.is_another(engine_id, line):
            return Waiting("Slurm does not know it")
        return explain.explain(line, self._fresh_nodes(), self._commands)

    def _fresh_nodes(self, asked: str | None = None) -> list[parse.NodeLine]:
        """Of these partitions, or of the cluster's own."""
        self._nodes = (-NODES_KEPT_S, self._nodes[1])
        return self._nodes_of(asked or self._options.get("partition"))

    def attach(self, task: TaskKey, node: str | None = None) -> list[str] | None:
        """From what is known: nothing is asked, so it answers also while Slurm does not."""
        key = f"{task.uuid}-{task.attempt}"
        job_id = self._ledger.known_id(key)
        line = None if job_id is None else self._lines.get(job_id)
        if job_id is None or (
            line is not None and (line.state == "ended" or self._own(job_id, line) is not line)
        ):
            return None  # Slurm has given it up, or its number means another job
        where = ["-w", node] if node else []
        return self._place.attach(
            ["srun", f"--jobid={self._number(job_id)}", "--overlap", *where, "--pty", "bash", "-i"]
        )

    def _number(self, job_id: str) -> str:
        """What srun wants: an element of an array has a number of its own once it has started."""
        line = self._lines.get(job_id)
        return line.number if line is not None and line.number else job_id

    # -- ending

    def cancel_many(self, ids: Sequence[EngineId]) -> list[EngineId]:
        """Those that wait: one scancel for many."""
        self.ask_again()
        lines = self.lines()
        found = {i: self._own(i, lines.get(i)) for i in ids}
        waiting_ids = [
            i for i, line in found.items() if isinstance(line, JobLine) and line.word == "PENDING"
        ]
        asked: list[EngineId] = []
        for at in range(0, len(waiting_ids), CANCELS_AT_ONCE):
            some = waiting_ids[at : at + CANCELS_AT_ONCE]
            try:
                self._commands.run(["scancel", "--state=PENDING", *some])
            except HeadwayError:
                break  # the rest is told one by one
            asked += some
        self.ask_again()
        return asked

    def cancel(self, engine_id: EngineId) -> bool:
        """First the shims are asked, who end their ranks in order; when their time is over, Slurm
        ends the job.
        """
        self.ask_again()
        line = self.lines().get(engine_id)
        if line is None:
            running = engine_id in self._begun
        elif line.state == "ended" or self._owner.is_another(engine_id, line):
            return False
        else:
            running = line.state == "running"

        asked_s = self._asked_s.setdefault(engine_id, self._clock_s())
        gently = False
        if running:
            grace_s = self._grace_s(engine_id) + KILL_AFTER_S
            gently = self._clock_s() - asked_s < grace_s
        try:
            if gently:
                if not self._ask_agents(engine_id):
                    self._commands.run(["scancel", "--signal=TERM", engine_id])
            else:
                self._commands.run(["scancel", engine_id])
        except RefusedError:
            return False  # it is not there any more
        self.ask_again()
        return True

    def _ask_agents(self, job_id: str) -> bool:
        """SIGTERM to the shims alone. scancel would signal their ranks as well, and those would
        seem to die by themselves. False: it cannot be done this way.
        """
        views = self._look([job_id], whole=True).get(job_id, {})
        shims = [
            (str(view.pid), str(view.start)) for view in views.values() if view.pid and view.start
        ]
        if not shims or len(shims) != len(views):
            return False
        step = script.terminate(job_id, shims)
        try:
            self._commands.run(step)
        except HeadwayError:
            return False
        return True

    def _grace_s(self, job_id: str) -> float:
        """Without end while an agent sends what is left of its folders: it gives up by itself."""
        views = self._look([job_id], whole=True).get(job_id, {})
        if any(view.finishing for view in views.values()):
            return math.inf
        return max((view.grace_s for view in views.values()), default=0.0)

    def salvage(self, engine_id: EngineId) -> bool:
        """The folders are shared, so what dead agents left can be sent from where Slurm's commands
        run.
        """
        views = self._look([engine_id], whole=True).get(engine_id, {})
        seen = self._tasks_after("", self._ended.get(engine_id), views)
        left = [name for name, one in seen.items() if one.detail.get("salvage")]
        try:
            return bool(left) and self._shelf.adopt(left, self._place.agent()) > 0
        except OSError as error:
            raise UnreachableError(
                f"no shipper could be started for {engine_id}: {error}"
            ) from error

    def tasks(self) -> list[tuple[EngineId, TaskKey]]:
        out = []
        for name in self._shelf.tasks():
            match = folders.ID.match(name)
            job_id = self.find(match["key"]) if match else None
            if match and job_id is not None:
                out.append((job_id, TaskKey(match["uuid"], int(match["attempt"]), match["task"])))
        return out

    def discard(self, engine_id: EngineId) -> None:
        line = self._own(engine_id, self.lines().get(engine_id))
        if isinstance(line, Observation) or (
            line is not None and line.state in ("starting", "running")
        ):
            return
        key = self._ledger.key_of(engine_id)
        views = self._look([engine_id], whole=True).get(engine_id, {})
        seen = self._tasks_after("", self._ended.pop(engine_id, None), views)
        done = [
            name for name, one in seen.items() if one.state == "gone" or one.detail.get("drained")
        ]
        self._shelf.remove(done)
        self._silence.forget(done)
        if key and len(done) == len(views):
            self._ledger.forget(key)
            self._forget([engine_id])

    def close(self) -> None:
        """Nothing of a job runs here; shippers that send for dead agents go on."""
        self._place.close()
