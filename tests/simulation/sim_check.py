"""The checkers of the simulation, apart from whatever makes faults: what Headway says against what
really was.

During a run: acknowledged data stays, terminal states stay. At the end: everything written is
stored once or told as a gap, every job is over in the state that the story of its processes allows.
"""

import itertools
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.home.paths import Paths
from headway.model.job import ENDED, Job, State, count_retries
from headway.server.control.reconcile import LAUNCHES_MAX
from headway.store import catalog, log_files, series
from tests.simulation.sim_engine import SimEngine
from tests.simulation.sim_server import SETTINGS, SimServer
from tests.simulation.sim_task import Ended, Stream, Task
from tests.simulation.sim_world import Violation


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Violation(what)


class History:
    """What was promised so far."""

    def __init__(self, engine: SimEngine) -> None:
        self.engine = engine
        # (task, stream) -> position that an agent was told
        self.acks: dict[tuple[str, str], int] = {}
        self.states: dict[str, tuple[State, int | None, int | None]] = {}
        self.submitted: set[str] = set()  # uuids that were sent
        self.accepted: dict[str, str] = {}  # uuid -> id, as a submitter was told
        self.after: dict[str, str] = {}  # uuid -> the job that it would wait for
        self.waits: dict[str, str] = {}  # uuid -> the job that it was told to wait for
        self._observed: tuple[object, int] = (None, 0)
        self.aborted: set[str] = set()  # uuids whose stop was asked for, answered or not

    def acknowledged(self, task: Task, acks: dict[str, int]) -> None:
        for stream, position in acks.items():
            require(
                position <= len(task.spool.streams[stream].data),
                f"{stream} of {task.key}: more than was written",
            )
            place = (str(task.key), stream)
            self.acks[place] = max(self.acks.get(place, 0), position)

    def observe(self, server: SimServer) -> None:
        """After a look, and after a restart."""
        if server.store is None or (server.store, server.store.commits) == self._observed:
            return
        self._observed = (server.store, server.store.commits)
        with server.read() as c:
            positions = self._check_positions(c)
            for job in catalog.list_jobs(c):
                self._check_state(job, positions)
        busy = {
            (task.key.uuid, task.key.attempt) for task in self.engine.made.values() if task.living()
        }
        jobs = {uuid for uuid, _ in busy}
        require(len(jobs) <= SETTINGS["max_running"], f"{len(jobs)} jobs run at once")
        require(len(jobs) == len(busy), f"two attempts of one job run at once: {sorted(busy)}")

    def _check_positions(self, c: sqlite3.Connection) -> dict[tuple[str, str], int]:
        rows = c.execute(
            """SELECT j.uuid || '-' || a.number || '-' || t.name AS task, s.name, s.position FROM streams s
               JOIN tasks t ON t.pk = s.task JOIN attempts a ON a.pk = t.attempt JOIN jobs j ON j.pk = a.job"""
        )
        positions = {(row["task"], row["name"]): row["position"] for row in rows}
        for place, position in self.acks.items():
            require(
                positions.get(place, 0) >= position,
                f"{place}: {position} bytes were acknowledged, and are gone",
            )
        return positions

    def _check_state(self, job: Job, positions: dict[tuple[str, str], int]) -> None:
        before = self.states.get(job.uuid)
        now = (job.state, job.exit_code, job.signal)
        if job.ended_ns is not None and (before is None or before[0] not in ENDED):
            self._check_complete(job, positions)
        if before is not None and before[0] in ENDED:
            require(before == now, f"{job.id} was {before} and became {now}")
        self.states[job.uuid] = now
        started, ended = job.started_ns or job.submitted_ns, job.ended_ns
        require(started >= job.submitted_ns, f"{job.id} started before it was submitted")
        require(ended is None or ended >= started, f"{job.id} ended before it started")

    def _check_complete(self, job: Job, positions: dict[tuple[str, str], int]) -> None:
        """The end is told last: whoever sees it sees all that the processes wrote before it."""
        for number in self.engine.attempts_of(job.uuid):
            self._check_sent(job, number, positions)

    def _check_sent(self, job: Job, number: int, positions: dict[tuple[str, str], int]) -> None:
        tasks = self.engine.tasks_of(job.uuid, number)
        for task, name, stream in [
            (t, name, stream) for t in tasks for name, stream in t.spool.streams.items()
        ]:
            agents = name == "shim" or name.startswith("shipper-")
            position = positions.get((str(task.key), name), 0)
            require(
                agents or position >= stream.real_end(),
                f"{job.id} is {job.state}, {name} is at {position}",
            )

    # -- the end

    def settled(self, server: SimServer) -> bool:
        """Whether nothing is left to happen."""
        if not server.is_up or self.submitted - set(self.accepted):
            return False
        if any(not self._is_drained(task) for task in self.engine.made.values()):
            return False
        with server.read() as c:
            jobs = [catalog.load_job(c, job.pk) for job in catalog.list_jobs(c)]
            left = c.execute("SELECT count(*) FROM tokens WHERE ended_ns IS NULL").fetchone()[0]
        return all(job.ended_ns is not None for job in jobs) and left == 0

    def _is_drained(self, task: Task) -> bool:
        if not task.begun:
            return task.shim is None
        return task.shim is None and task.shipper is None and task.spool.is_drained()

    def check_end(self, server: SimServer) -> None:
        self.observe(server)
        with server.read() as c:
            jobs = [catalog.load_job(c, job.pk) for job in catalog.list_jobs(c)]
            require(
                len(jobs) == len(self.submitted),
                f"{len(self.submitted)} submissions made {len(jobs)} jobs",
            )
            for job in jobs:
                require(
                    self.accepted[job.uuid] == job.id,
                    f"{job.id}: its submitter was told {self.accepted}",
                )
                self._check_job(job, {one.uuid: one for one in jobs})
                for attempt in job.attempts:
                    for task in self.engine.tasks_of(job.uuid, attempt.number):
                        check_data(c, server.paths, job, task)
        check_files(server.paths.env)

    def _check_job(self, job: Job, jobs: dict[str, Job]) -> None:
        aborted = job.uuid in self.aborted
        needed = jobs.get(self.waits.get(job.uuid, ""))
        check_attempts(job)
        for attempt in job.attempts:
            seen = replace(
                job, state=attempt.state, exit_code=attempt.exit_code, signal=attempt.signal
            )
            tasks = self.engine.tasks_of(job.uuid, attempt.number)
            if len(tasks) > 1:
                check_together(seen, tasks, aborted)
            else:
                check_truth(seen, tasks[0] if tasks else None, aborted)
        if job.attempts and needed is not None:
            require(
                needed.state is State.SUCCEEDED,
                f"{job.id} did not wait: {needed.id} is {needed.state}",
            )
        if not job.attempts:
            broken = needed is not None and needed.state is not State.SUCCEEDED
            require(job.state is State.STOPPED, f"{job.id} never started and is {job.state}")
            require(aborted or broken, f"{job.id} is stopped, and nobody asked for it")
            require(job.cause is not None, f"{job.id} does not say why it was stopped")


def check_attempts(job: Job) -> None:
    """Never more than allowed; each tells its cause; only the last may be anything but failed."""
    total, counted = count_retries(job.attempts)
    retry = job.spec.retry
    require(
        total <= retry.total_max,
        f"{job.id} was tried again {total} times, {retry.total_max} are allowed",
    )
    require(
        counted <= retry.max, f"{job.id}: {counted} counted retries, {retry.max} were asked for"
    )
    require(
        len(job.attempts) in (0, total, total + 1),
        f"{job.id}: {total} retries, {len(job.attempts)} attempts",
    )
    for attempt in job.attempts[:-1]:
        again = attempt.retry is not None and attempt.retry["do"] != "no"
        require(
            again and attempt.state is State.FAILED,
            f"{job.id}: attempt {attempt.number} is {attempt.state}",
        )
    for attempt in job.attempts:
        require(attempt.ended_ns is not None, f"{job.id}: attempt {attempt.number} has no end")
        told = attempt.state is State.SUCCEEDED or attempt.cause is not None
        require(told, f"{job.id}: attempt {attempt.number} does not tell its cause")
    if job.attempts and job.attempts[-1].retry is not None:
        require(
            job.state is State.STOPPED, f"{job.id} should have been tried again and is {job.state}"
        )
    elif job.attempts:
        require(
            job.state is job.attempts[-1].state, f"{job.id} is {job.state}, its last attempt is not"
        )


def check_files(env: Path) -> None:
    left = list(env.iterdir()) if env.exists() else []
    require(not left, f"environments were left: {left}")


# -- data


def check_data(c: sqlite3.Connection, paths: Paths, job: Job, task: Task) -> None:
    """acknowledged ⊆ stored ⊆ written; nothing twice; gaps account for the rest."""
    rows = c.execute(
        """SELECT s.pk, s.name, s.position FROM streams s JOIN tasks t ON t.pk = s.task
           JOIN attempts a ON a.pk = t.attempt WHERE a.job = ? AND a.number = ? AND t.name = ?""",
        (job.pk, task.key.attempt, task.key.task),
    ).fetchall()
    stored = {row["name"]: row for row in rows}
    holes: dict[str, list[tuple[int, int]]] = {}
    for name, stream in task.spool.streams.items():
        require(name in stored or not stream.data, f"{job.id}: nothing of {name} is stored")
        if name in stored:
            position = stored[name]["position"]
            # a stream that was dropped as a whole is told to its last byte, also where that ends in
            # zeros
            told = stream.real_end() <= position <= len(stream.data)
            require(told, f"{job.id}: {name} is at {position} of {len(stream.data)}")
            holes[name] = _check_stream(c, paths, stored[name]["pk"], stream)
    for name, row in stored.items():
        require(
            name in task.spool.streams or row["position"] == 0,
            f"{job.id}: {name} was never written",
        )
    for index in range(len(task.programs)):
        _check_points(c, job, task, task.first_rank + index, holes)


def _check_stream(
    c: sqlite3.Connection, paths: Paths, pk: int, stream: Stream
) -> list[tuple[int, int]]:
    rows = c.execute(
        "SELECT offset, bytes FROM gaps WHERE stream = ? AND about IS NULL ORDER BY offset", (pk,)
    )
    holes = [(row["offset"], row["offset"] + row["bytes"]) for row in rows]
    for (_, end), (start, _) in itertools.pairwise(holes):
        require(end <= start, f"{stream.name}: gaps overlap: {holes}")
    if stream.kind == "raw":
        for piece in log_files.pieces(c, paths, pk, 0, len(stream.data)):
            if piece.missing is None:
                written = bytes(stream.data[piece.offset : piece.offset + piece.length])
                require(
                    piece.data == written,
                    f"{stream.name}: other bytes at {piece.offset} than were written",
                )
    return holes


def _check_points(
    c: sqlite3.Connection, job: Job, task: Task, rank: int, holes: dict[str, list[tuple[int, int]]]
) -> None:
    expected, missing = [], 0
    for point in task.points.get(rank, []):
        if any(start <= point.start < end for start, end in holes.get(point.stream, [])):
            missing += 1
        else:
            expected.append(point.step)
    found = [
        one for one in series.read_series(c, job.pk, "x", rank) if one.attempt == task.key.attempt
    ]
    steps = [int(step) for one in found for step in one.points.steps]
    values = [int(value) for one in found for value in one.points.values]
    require(steps == values, f"{job.id} rank {rank}: steps and values differ")
    if steps != expected:
        lost, more = sorted(set(expected) - set(steps))[:5], sorted(set(steps) - set(expected))[:5]
        twice = len(steps) - len(set(steps))
        raise Violation(
            f"{job.id} rank {rank}: points lost {lost}, never written {more}, twice {twice}"
        )
    _check_told(task, f"{job.id} rank {rank}", missing, _points_told(c, job, task, rank))


def _check_told(task: Task, who: str, missing: int, told: int) -> None:
    """Gaps tell how many points are missing. A shipper that does not know what its predecessor sent
    may count points that the server has; one that believes a garbage cursor may remove what it
    cannot count any more.
    """
    struck = task.world.struck
    if "cursor garbage" in struck:
        return
    exact = not {"kill a shipper", "cursor lost", "cursor old"} & set(struck)
    holds = told == missing if exact else told >= missing
    require(holds, f"{who}: {missing} points are missing, {told} were told")


def _points_told(c: sqlite3.Connection, job: Job, task: Task, rank: int) -> int:
    row = c.execute(
        """SELECT coalesce(sum(g.points), 0) AS n FROM gaps g JOIN streams s ON s.pk = g.stream
           JOIN tasks t ON t.pk = s.task JOIN attempts a ON a.pk = t.attempt
           WHERE a.job = ? AND a.number = ? AND s.name LIKE 'metrics-%' AND s.rank = ?""",
        (job.pk, task.key.attempt, rank),
    ).fetchone()
    return int(row["n"])


# -- states


def check_truth(job: Job, task: Task | None, aborted: bool) -> None:
    """The state that Headway says against the story that the kernel knows."""
    require(job.ended_ns is not None, f"{job.id} has no end")
    if job.state is State.STOPPED:
        require(aborted, f"{job.id} is stopped, and nobody asked for it")
    if task is None or not task.begun:
        tried = task is not None and task.births >= LAUNCHES_MAX
        allowed = {State.FAILED} if tried else set()
        allowed |= {State.STOPPED} if aborted else set()
        require(
            job.state in allowed,
            f"{job.id} never started and is {job.state}; {story(task) if task else ''}",
        )
        return
    first = _first_failure(task)
    if "preempted" in task.story and job.state in (State.FAILED, State.SUCCEEDED, State.STOPPED):
        return  # which of stop, failure and preemption came first is not told apart here
    if not task.shim_killed:
        _check_known(job, task, first)
        return
    possible = {State.UNKNOWN, _full_truth(task, first)[0]}
    if "stop" in task.story:
        possible.add(State.STOPPED)
    if "walltime" in task.story or first is not None:
        possible.add(State.FAILED)
    require(
        job.state in possible,
        f"{job.id} is {job.state}; its shim was killed; possible: {possible}; {story(task)}",
    )
    # which came first is not told apart here
    either = "walltime" in task.story or "refused" in task.story
    if job.state is State.FAILED and not either and first is not None:
        require(
            (job.exit_code, job.signal) in {(first.exit_code, first.signal), *_seen_at_once(task)},
            f"{job.id} failed with {job.exit_code}/{job.signal}, the first failure was {first}; {story(task)}",
        )


def check_together(job: Job, tasks: list[Task], aborted: bool) -> None:
    """The same for several tasks: one that fails by itself ends all, and the first of them is how
    the whole ended.
    """
    told = {word for task in tasks for word in task.story}
    ends = [end for task in tasks for end in task.ended]
    failed = [end for end in ends if not end.told_to and end.exit_code != 0]
    unstarted = [task for task in tasks if not task.begun]
    killed = any(task.shim_killed for task in tasks)
    whole = not unstarted and len(ends) == sum(len(task.programs) for task in tasks)
    well = whole and all(end.exit_code == 0 for end in ends)
    who = f"{job.id} is {job.state} with {job.exit_code}/{job.signal}; {[story(task) for task in tasks]}"
    require(job.ended_ns is not None, f"no end: {who}")
    require(job.state is not State.STOPPED or aborted, f"nobody asked for it: {who}")
    require(job.state is not State.UNKNOWN or killed, f"everything is known: {who}")
    require(job.state is not State.SUCCEEDED or well, f"not all went well: {who}")
    if "preempted" in told:
        return  # which of stop, failure and preemption came first is not told apart here
    # a task whose agent died at its birth is not tried again once another one is over
    given_up = any(task.births >= LAUNCHES_MAX or killed for task in unstarted)
    reasons = bool(failed) or given_up or bool(told & {"walltime", "refused"})
    require(job.state is not State.FAILED or reasons, f"nothing of it failed: {who}")
    if killed:
        return  # which ends are known depends on when that was
    if well and not any(end.told_to for end in ends) and not told:
        require(job.state is State.SUCCEEDED, f"all went well: {who}")
    if failed and "stop" not in told:
        require(job.state is State.FAILED, f"a rank failed: {who}")
    if job.state is State.FAILED and failed and not given_up and not told & {"walltime", "refused"}:
        _check_first(job, tasks, failed, who)


def _check_first(job: Job, tasks: list[Task], failed: list[Ended], who: str) -> None:
    """Of several failures the first, unless an agent stood still over one, or the clock was set
    meanwhile.
    """
    fuzzy = any(task.slept for task in tasks) or "set the clock" in tasks[0].world.struck
    first = min(failed, key=lambda end: end.at_s)
    allowed = {(end.exit_code, end.signal) for end in (failed if fuzzy else [first])}
    require((job.exit_code, job.signal) in allowed, f"the first failure was another: {who}")


def _first_failure(task: Task) -> Ended | None:
    """The rank that failed first by itself: nobody had signalled any rank before."""
    for end in task.ended:
        if end.told_to:
            return None
        if end.exit_code != 0:
            return end
    return None


def _full_truth(task: Task, first: Ended | None) -> tuple[State, int | None, int | None]:
    if "refused" in task.story:
        return State.FAILED, 127, None
    if first is not None:
        return State.FAILED, first.exit_code, first.signal
    if "stop" in task.story:
        return State.STOPPED, None, None
    if "walltime" in task.story:
        return State.FAILED, None, None
    return State.SUCCEEDED, 0, None


def _check_known(job: Job, task: Task, first: Ended | None) -> None:
    if "refused" in task.story and first is not None:
        require(job.state is State.FAILED, f"{job.id} is {job.state}; {story(task)}")
        return  # which of the two came first is not told apart here
    state, code, signal = _full_truth(task, first)
    if task.slept and "stop" in task.story and job.state is State.STOPPED:
        return
    require(job.state is state, f"{job.id} is {job.state}, in truth {state}; {story(task)}")
    if state is State.SUCCEEDED or (state is State.FAILED and "walltime" not in task.story):
        ends = {(code, signal), *_seen_at_once(task)}
        require(
            (job.exit_code, job.signal) in ends,
            f"{job.id}: {job.exit_code}/{job.signal}; {story(task)}",
        )


def _seen_at_once(task: Task) -> set[tuple[int | None, int | None]]:
    """Several failures may have waited for an agent that stood still: any of them may seem the
    first.
    """
    failed = [end for end in task.ended if not end.told_to and end.exit_code != 0]
    return {(end.exit_code, end.signal) for end in failed} if task.slept else set()


def story(task: Task) -> dict[str, Any]:
    return {
        "ended": task.ended,
        "story": task.story,
        "shim_killed": task.shim_killed,
        "births": task.births,
    }
