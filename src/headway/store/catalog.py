"""Jobs, attempts, tasks, processes, events and tokens: rows in and out. Plain functions on a
connection.

Writers run inside `Store.write`, readers on either kind of connection. Nothing here decides on a
state; `set_job_state` only refuses a change that the transition table does not allow.
"""

import json
import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import islice
from typing import Any
from uuid import UUID
from zlib import crc32

import msgspec

from headway.model.errors import NotFoundError, RefusedError, UsageError
from headway.model.ids import check_name, new_suffix
from headway.model.job import Attempt, Job, JobSpec, Process, State, Task, may_follow
from headway.model.json_types import JsonMapping, JsonObject
from headway.model.limits import JOBS_LISTED_MAX, TAG_CHARS_MAX, TAGS_MAX
from headway.settings import argument_config
from headway.store import effective_config, job_conditions, job_reference, notice_queue
from headway.store.connection import touch
from headway.store.pattern import Matcher
from headway.wire.batch import TaskKey
from headway.wire.filter_language import Condition

_OPEN_STATES = tuple(
    str(s) for s in State if s not in (State.SUCCEEDED, State.FAILED, State.STOPPED)
)
_TASK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")  # also a folder's name
_LIGHT = """pk, id, uuid, spec, state, state_since_ns, submitted_ns, started_ns, ended_ns, exit_code, signal,
            stop_requested_ns, stop_signal, tags, name, star, bug, description, NULL AS config, cause,
            spec_crc"""
_decoder = msgspec.json.Decoder(JobSpec)  # several times as fast as json and from_values
_FIELDS = {f.name for f in fields(JobSpec)}


def spec_text(spec: JobSpec) -> str:
    """By `json`: msgspec would make null of NaN, and takes neither bytes that are not UTF-8 nor
    large numbers.
    """
    return json.dumps(msgspec.to_builtins(spec), separators=(",", ":"))


def spec_crc(text: str) -> int:
    """Kept beside a spec: a flipped bit may leave it as valid as it was."""
    return crc32(text.encode("utf-8", "surrogatepass"))


def read_spec(text: str) -> JobSpec:
    try:
        return _decoder.decode(text)
    # bytes that are not UTF-8, NaN, or a type that an earlier release stored
    except msgspec.MsgspecError:
        return JobSpec.from_values({k: v for k, v in json.loads(text).items() if k in _FIELDS})


# for the loop, which reads the same jobs again and again and changes none
read_spec_cached = lru_cache(maxsize=1024)(read_spec)


@dataclass(slots=True)
class Token:
    id: str
    hash: bytes
    role: str
    task: str | None
    ended_ns: int | None
    name: str = ""  # of the machine or person that has it


@dataclass(slots=True)
class JobFilter:
    states: list[str] = field(default_factory=list)
    cluster: str | None = None
    experiment: str | None = None
    since_ns: int | None = None  # submitted at or after
    match: str | None = None  # regular expression, searched in the id and in the command
    limit: int = JOBS_LISTED_MAX
    array: str | None = None  # uuid: jobs of that array
    single: bool = False  # only jobs that belong to no array
    where: Condition | None = None  # over config, metrics and fields; ages are counted from now_ns
    now_ns: int = 0
    before_ns: int | None = None  # submitted before
    tags: list[str] = field(default_factory=list)  # has all of them


# -- jobs


def insert_job(
    c: sqlite3.Connection,
    uuid: str,
    spec: JobSpec,
    now_ns: int,
    engine: str = "local",
    suffix: str | None = None,
) -> Job:
    """A new waiting job. The same uuid gives the same job, whatever else is asked for (P9).
    `suffix`: the one that it has on its own machine, taken where it is free.
    """
    row = c.execute("SELECT pk FROM jobs WHERE uuid = :uuid", {"uuid": uuid}).fetchone()
    if row is not None:
        return load_job(c, row["pk"])
    _check_uuid(uuid)
    check_name(spec.name)
    tags = _union([], spec.tags)
    text = spec_text(spec)
    config = argument_config.of_command(spec.command)  # until the program says its own
    while True:
        suffix = suffix or new_suffix()
        cursor = c.execute(
            """INSERT INTO jobs (id, suffix, uuid, name, experiment, cluster, engine, state, state_since_ns, priority,
                                 spec, spec_crc, tags, submitted_ns, config, config_attempt, config_rank)
               VALUES (:id, :suffix, :uuid, :name, :experiment, :cluster, :engine, 'waiting', :now, :priority, :spec,
                       :crc, :tags, :now, :config, 0, 0)
               ON CONFLICT (suffix) DO NOTHING""",
            {
                "id": f"{spec.name}-{suffix}", "suffix": suffix, "uuid": uuid, "name": spec.name,
                "experiment": spec.experiment, "cluster": spec.cluster, "engine": engine, "now": now_ns,
                "priority": spec.priority, "spec": text, "crc": spec_crc(text), "tags": json.dumps(tags),
                "config": json.dumps(config) if config else None,
            },
        )  # fmt: skip
        if cursor.rowcount == 1:
            break
        suffix = None
    pk = int(cursor.lastrowid or 0)
    add_event(c, pk, "state", {"to": "waiting"}, now_ns)
    return Job(
        pk,
        f"{spec.name}-{suffix}",
        uuid,
        spec,
        State.WAITING,
        now_ns,
        now_ns,
        tags=tags,
        name=spec.name,
    )


def _check_uuid(uuid: str) -> None:
    """It becomes a folder's name, so it is exactly a UUID and nothing else (B20)."""
    try:
        same = str(UUID(uuid)) == uuid
    except ValueError:
        same = False
    if not same:
        raise UsageError(f"{uuid[:80]!r} is not a UUID", "lower case, 8-4-4-4-12 digits")


def find_uuid(c: sqlite3.Connection, uuid: str) -> int | None:
    """The job of this uuid, unless it was deleted."""
    row = c.execute(
        "SELECT pk FROM jobs WHERE uuid = :uuid AND deleted_ns IS NULL", {"uuid": uuid}
    ).fetchone()
    return None if row is None else int(row["pk"])


def resolve(c: sqlite3.Connection, ref: str) -> int:
    """The one job that `ref` means; an error that lists the candidates where there is not exactly
    one.
    """
    jobs, arrays = job_reference.find(c, ref)
    if len(jobs) == 1 and not arrays:
        return int(jobs[0]["pk"])
    if len(arrays) == 1 and not jobs:
        raise job_reference.no_job(c, arrays[0])
    raise (
        job_reference.ambiguous(ref, jobs, arrays)
        if jobs or arrays
        else job_reference.not_found(c, ref)
    )


def load_job(c: sqlite3.Connection, pk: int) -> Job:
    """The whole job with its attempts, tasks and processes."""
    row = c.execute("SELECT * FROM jobs WHERE pk = :pk", {"pk": pk}).fetchone()
    if row is None:
        raise NotFoundError("this job has been deleted", "`hw ls` lists the jobs")
    job = _job(row)
    _attach_attempts(c, {pk: job})
    return job


def list_jobs(c: sqlite3.Connection, filters: JobFilter | None = None) -> list[Job]:
    """Jobs, newest first, without their attempts and configs."""
    f = filters or JobFilter()
    where, values = where_of(f)
    limit = max(0, min(f.limit, JOBS_LISTED_MAX))
    rows: Iterable[sqlite3.Row] = c.execute(
        f"SELECT {_LIGHT}, config AS told FROM jobs WHERE {where} ORDER BY submitted_ns DESC, pk DESC",  # noqa: S608  (our own words)
        values,
    )
    passing = passing_of(c, f)
    if passing is not None:
        rows = (row for row in rows if row["pk"] in passing)
    with matcher_of(f) as matcher:
        if matcher is not None:
            rows = matcher.select(
                rows, lambda row: matched_texts(row["id"], row["spec"], row["told"])
            )
        return [_job(row) for row in islice(rows, limit)]


def cluster_definitions(c: sqlite3.Connection, clusters_max: int) -> dict[str, JsonObject]:
    """How the newest job of each cluster defines it, by the cluster's name."""
    rows = c.execute(
        """SELECT cluster, json_extract(spec, '$.definition') AS definition FROM jobs
           WHERE pk IN (SELECT max(pk) FROM jobs WHERE deleted_ns IS NULL GROUP BY cluster)
           ORDER BY pk DESC LIMIT :limit""",
        {"limit": clusters_max},
    )
    return {row["cluster"]: json.loads(row["definition"] or "{}") for row in rows}


def load_light(c: sqlite3.Connection, keys: list[int]) -> list[Job]:
    """These jobs, without their attempts and configs, in no order."""
    marks = ", ".join("?" * len(keys))
    rows = c.execute(
        f"SELECT {_LIGHT} FROM jobs WHERE deleted_ns IS NULL AND pk IN ({marks})",  # noqa: S608  (our own words)
        keys,
    )
    return [_job(row) for row in rows]


def ids_of(c: sqlite3.Connection, keys: list[int]) -> dict[int, str]:
    marks = ", ".join("?" * len(keys))
    rows = c.execute(f"SELECT pk, id FROM jobs WHERE pk IN ({marks})", keys)  # noqa: S608  (our own words)
    return dict(rows.fetchall())


def job_keys(c: sqlite3.Connection, filters: JobFilter) -> list[int]:
    """As `list_jobs`, but only their keys."""
    where, values = where_of(filters)
    columns = "pk, id, spec, config" if filters.match else "pk"
    rows: Iterable[sqlite3.Row] = c.execute(
        f"SELECT {columns} FROM jobs WHERE {where} ORDER BY submitted_ns DESC, pk DESC",  # noqa: S608  (our own words)
        values,
    )
    passing = passing_of(c, filters)
    if passing is not None:
        rows = (row for row in rows if row["pk"] in passing)
    with matcher_of(filters) as matcher:
        if matcher is not None:
            rows = matcher.select(
                rows, lambda row: matched_texts(row["id"], row["spec"], row["config"])
            )
        return [int(row["pk"]) for row in islice(rows, filters.limit)]


def passing_of(c: sqlite3.Connection, filters: JobFilter) -> set[int] | None:
    """Keys of the jobs that the condition `where` holds for; None: there is none."""
    if filters.where is None:
        return None
    where, values = where_of(filters)
    rows = c.execute(f"SELECT pk FROM jobs WHERE {where}", values)  # noqa: S608  (our own words)
    keys = [int(row["pk"]) for row in rows]
    return set(job_conditions.chosen(c, keys, filters.where, filters.now_ns))


def matcher_of(filters: JobFilter) -> "AbstractContextManager[Matcher | None]":
    """Of what `matched_texts` gives of a job; None where there is no `match`."""
    return Matcher(filters.match) if filters.match else nullcontext()


def matched_texts(job_id: str, spec: str, config: str | None = None) -> tuple[str, ...]:
    """Where `match` is looked for: the id, which begins with the name, the command, and parameters
    and config as `name=value`.
    """
    values = json.loads(spec)
    words = values.get("command") or []
    settings = dict(values.get("parameters") or {})
    if config:
        settings |= effective_config.flat(json.loads(config))
    told = " ".join(f"{name}={value}" for name, value in settings.items())
    return job_id, " ".join(map(str, words)), told


def where_of(f: JobFilter) -> tuple[str, JsonObject]:
    """The condition in SQL and its values; `match` and `where` are not in it."""
    terms, values = ["deleted_ns IS NULL"], dict[str, Any]()
    if f.states:
        unknown = [s for s in f.states if s not in set(State)]
        if unknown:
            raise UsageError(f'there is no state "{unknown[0][:40]}"', "states: " + " ".join(State))
        names = [f"state_{i}" for i in range(len(f.states))]
        terms.append(f"state IN ({', '.join(':' + n for n in names)})")
        values.update(zip(names, f.states, strict=True))
    if f.single:
        terms.append("array IS NULL")
    for column in ("cluster", "experiment", "array"):
        if (wanted := getattr(f, column)) is not None:
            terms.append(f"{column} = :{column}")
            values[column] = wanted
    if f.since_ns is not None:
        terms.append("submitted_ns >= :since")
        values["since"] = f.since_ns
    if f.before_ns is not None:
        terms.append("submitted_ns < :before")
        values["before"] = f.before_ns
    for i, tag in enumerate(f.tags):
        terms.append(f"EXISTS (SELECT 1 FROM json_each(jobs.tags) WHERE value = :tag_{i})")  # noqa: S608  (our own words)
        values[f"tag_{i}"] = tag
    return " AND ".join(terms), values


def has_guests(c: sqlite3.Connection) -> bool:
    """Whether a job of another machine is open here."""
    marks = ", ".join("?" * len(_OPEN_STATES))
    row = c.execute(
        f"""SELECT 1 FROM jobs WHERE state IN ({marks}) AND ended_ns IS NULL AND deleted_ns IS NULL
            AND instr(spec, '"guest_of":"') > 0 LIMIT 1""",  # noqa: S608  (our own words, values are parameters)
        _OPEN_STATES,
    )
    return row.fetchone() is not None


def open_jobs(
    c: sqlite3.Connection, window: int | None = None, wide: Collection[str] = (), wide_window: int = 0,
    skip: Collection[int] = (),
) -> list[Job]:  # fmt: skip
    """Every job that has not ended, whole, by priority and then age: what reconcile looks at.

    With `window`: of the jobs that only wait, no more than so many of each cluster, the first in
    the queue; of clusters of the engines `wide`, `wide_window`. Those that wait on another machine
    are in that machine's queue. Jobs in `skip` are left out.
    """
    marks = ", ".join("?" * len(_OPEN_STATES))
    keys = [
        row["pk"]
        for row in c.execute(
            f"""SELECT pk FROM jobs WHERE begun = 1 AND state IN ({marks}) AND deleted_ns IS NULL
                UNION SELECT pk FROM jobs WHERE stop_requested_ns IS NOT NULL AND ended_ns IS NULL
                  AND deleted_ns IS NULL AND state IN ({marks})
                UNION SELECT pk FROM jobs WHERE begun = 0 AND state <> 'waiting' AND state IN ({marks})
                  AND deleted_ns IS NULL""",  # noqa: S608  (our own words, values are parameters)
            (*_OPEN_STATES, *_OPEN_STATES, *_OPEN_STATES),
        )
    ]
    for cluster in [row["cluster"] for row in c.execute(_CLUSTERS_WAITING)]:
        limit = -1 if window is None else window
        if wide and c.execute(_ENGINE, (cluster,)).fetchone()["engine"] in wide:
            limit = max(limit, wide_window)
        keys += [row["pk"] for row in c.execute(_QUEUE, {"cluster": cluster, "limit": limit})]
    keys = [pk for pk in keys if pk not in skip]
    jobs = {
        job.pk: job
        for job in sorted(_jobs(c, keys), key=lambda j: (-j.spec.priority, j.submitted_ns, j.pk))
    }
    _attach_attempts(c, jobs)
    return list(jobs.values())


_CLUSTERS_WAITING = "SELECT DISTINCT cluster FROM jobs WHERE begun = 0 AND state = 'waiting'"
_ENGINE = "SELECT engine FROM jobs WHERE begun = 0 AND state = 'waiting' AND cluster = ? LIMIT 1"
_QUEUE = """SELECT pk FROM jobs WHERE begun = 0 AND state = 'waiting' AND cluster = :cluster AND deleted_ns IS NULL
              AND stop_requested_ns IS NULL AND engine <> 'guest'
            ORDER BY priority DESC, submitted_ns, pk LIMIT :limit"""


def _jobs(c: sqlite3.Connection, keys: list[int]) -> Iterator[Job]:
    for start in range(0, len(keys), 1000):
        some = keys[start : start + 1000]
        marks = ", ".join("?" * len(some))
        for row in c.execute(f"SELECT * FROM jobs WHERE pk IN ({marks})", some):  # noqa: S608  (our own words)
            yield _job(row, read_spec_cached)


def has_open_jobs(c: sqlite3.Connection) -> bool:
    marks = ", ".join("?" * len(_OPEN_STATES))
    query = f"SELECT 1 FROM jobs WHERE state IN ({marks}) AND deleted_ns IS NULL LIMIT 1"  # noqa: S608  (our own words)
    return c.execute(query, _OPEN_STATES).fetchone() is not None


def open_uuids(c: sqlite3.Connection) -> set[str]:
    """uuids of jobs that are not over, and of the arrays that they belong to."""
    rows = c.execute("SELECT uuid, array FROM jobs WHERE ended_ns IS NULL AND deleted_ns IS NULL")
    return {uuid for row in rows for uuid in (row["uuid"], row["array"]) if uuid is not None}


def states_of(c: sqlite3.Connection, uuids: Iterable[str]) -> dict[str, tuple[str, State | None]]:
    """(id, state) by uuid, deleted or not; without a state where nothing more will come of a job."""
    found: dict[str, tuple[str, State | None]] = {}
    for uuid in uuids:
        row = c.execute(
            "SELECT id, state, ended_ns FROM jobs WHERE uuid = :uuid", {"uuid": uuid}
        ).fetchone()
        if row is None:
            found[uuid] = ("a job that has been deleted", None)
        else:
            lost = row["state"] == State.UNKNOWN and row["ended_ns"] is not None
            found[uuid] = (row["id"], None if lost else State(row["state"]))
    return found


def set_job_state(
    c: sqlite3.Connection, pk: int, state: State, now_ns: int, *, exit_code: int | None = None,
    signal: int | None = None, started_ns: int | None = None, ended_ns: int | None = None,
    cause: JsonMapping | None = None,
) -> None:  # fmt: skip
    """Move a job to `state` and tell it as an event. A change that may not be raises with the job's
    story.
    """
    row = c.execute(
        "SELECT id, state, state_since_ns FROM jobs WHERE pk = :pk", {"pk": pk}
    ).fetchone()
    if row is None:
        raise NotFoundError("this job has been deleted", "`hw ls` lists the jobs")
    old = State(row["state"])
    if old == state:
        return
    if not may_follow(old, state):
        raise RefusedError(
            f"{row['id']} is {old} and cannot become {state}; its story: {story(c, pk)}"
        )
    c.execute(
        """UPDATE jobs SET state = :state, state_since_ns = :now, exit_code = coalesce(:exit_code, exit_code),
             signal = coalesce(:signal, signal), started_ns = coalesce(started_ns, :started),
             ended_ns = coalesce(:ended, ended_ns), cause = coalesce(:cause, cause) WHERE pk = :pk""",
        {
            "pk": pk, "state": str(state), "now": now_ns, "exit_code": exit_code, "signal": signal,
            "started": started_ns, "ended": ended_ns, "cause": json.dumps(cause) if cause else None,
        },
    )  # fmt: skip
    data = {"from": str(old), "to": str(state), "exit_code": exit_code, "signal": signal}
    add_event(c, pk, "state", {k: v for k, v in data.items() if v is not None}, now_ns)
    notice_queue.note_change(c, pk, str(old), str(state), row["state_since_ns"], now_ns)


def wait_again(c: sqlite3.Connection, pk: int, since_ns: int, started_ns: int | None) -> None:
    """The job waits for its next attempt. It has started, also where nobody saw it run and it never
    left that state.
    """
    set_job_state(c, pk, State.WAITING, since_ns, started_ns=started_ns)
    c.execute(
        """UPDATE jobs SET state_since_ns = max(state_since_ns, :since), started_ns = coalesce(started_ns, :started)
             WHERE pk = :pk""",
        {"pk": pk, "since": since_ns, "started": started_ns},
    )


def story(c: sqlite3.Connection, pk: int) -> str:
    """The job's states so far, in order, for the message of an error."""
    rows = c.execute(
        "SELECT data FROM events WHERE job = :pk AND type = 'state' ORDER BY pk", {"pk": pk}
    ).fetchall()
    return " → ".join(str(json.loads(row["data"]).get("to")) for row in rows[-20:])


def request_stop(c: sqlite3.Connection, pk: int, now_ns: int, signum: int | None = None) -> bool:
    """Note that a person wants the job to end; False when that is known already. `signum`: by that
    signal alone, which a request without one takes the place of.
    """
    if signum is None:
        c.execute(
            "UPDATE jobs SET stop_signal = NULL WHERE pk = :pk AND stop_signal IS NOT NULL",
            {"pk": pk},
        )
    cursor = c.execute(
        "UPDATE jobs SET stop_requested_ns = :now, stop_signal = :signal WHERE pk = :pk AND stop_requested_ns IS NULL",
        {"pk": pk, "now": now_ns, "signal": signum},
    )
    if cursor.rowcount:
        add_event(c, pk, "stop_requested", {}, now_ns)
    return cursor.rowcount > 0


def set_marks(c: sqlite3.Connection, pk: int, changes: JsonMapping) -> None:
    """`changes`: some of name, tags, star, bug, description, checked. The id stays: folders and
    other people's notes go by it.
    """
    unknown = set(changes) - {"name", "tags", "star", "bug", "description"}
    if unknown:
        raise TypeError(f"not a mark: {sorted(unknown)}")
    if not changes:
        return
    values = dict(changes)
    if "tags" in values:
        values["tags"] = json.dumps(_union([], values["tags"]))
    assignments = ", ".join(f"{name} = :{name}" for name in values)
    c.execute(f"UPDATE jobs SET {assignments} WHERE pk = :pk", {**values, "pk": pk})  # noqa: S608  (our own words)
    touch(c, pk, "job")


def add_tags(c: sqlite3.Connection, pk: int, tags: Iterable[str]) -> None:
    """Union, in the order of their first appearance, bounded."""
    row = c.execute("SELECT tags FROM jobs WHERE pk = :pk", {"pk": pk}).fetchone()
    joined = _union(json.loads(row["tags"]), tags)
    c.execute("UPDATE jobs SET tags = :tags WHERE pk = :pk", {"pk": pk, "tags": json.dumps(joined)})
    touch(c, pk, "job")


def mark_deleted(c: sqlite3.Connection, pk: int, now_ns: int) -> None:
    """Hide an ended job; gc removes its rows and files."""
    row = c.execute("SELECT id, state FROM jobs WHERE pk = :pk", {"pk": pk}).fetchone()
    if row is None:
        return
    if row["state"] in _OPEN_STATES:
        raise RefusedError(
            f"{row['id']} is {row['state']}", f"hw abort {row['id']}, then delete it"
        )
    c.execute(
        "UPDATE jobs SET deleted_ns = coalesce(deleted_ns, :now) WHERE pk = :pk",
        {"pk": pk, "now": now_ns},
    )
    touch(c, pk, "job")


# -- attempts and tasks


def insert_attempt(c: sqlite3.Connection, job_pk: int, number: int, key: str, now_ns: int) -> int:
    """The attempt's pk; the same key again gives the same attempt."""
    c.execute(
        """INSERT INTO attempts (job, number, key, state, created_ns) VALUES (:job, :number, :key, 'waiting', :now)
           ON CONFLICT (key) DO NOTHING""",
        {"job": job_pk, "number": number, "key": key, "now": now_ns},
    )
    touch(c, job_pk, "job")
    return attempt_pk(c, job_pk, number)


def attempt_pk(c: sqlite3.Connection, job_pk: int, number: int) -> int:
    row = c.execute(
        "SELECT pk FROM attempts WHERE job = :job AND number = :number",
        {"job": job_pk, "number": number},
    ).fetchone()
    if row is None:
        raise NotFoundError(f"the job has no attempt {number}")
    return int(row["pk"])


def set_attempt(c: sqlite3.Connection, job_pk: int, number: int, **changes: object) -> None:
    """Set columns of an attempt: state, engine_id, engine_word, cause, findings, retry, exit_code, signal,
    started_ns, ended_ns.

    A terminal state of an attempt never changes (P8): a second end is ignored.
    """
    allowed = {
        "state",
        "engine_id",
        "engine_word",
        "cause",
        "findings",
        "retry",
        "exit_code",
        "signal",
        "started_ns",
        "ended_ns",
    }
    if not changes or not set(changes) <= allowed:
        raise ValueError(f"an attempt has no {set(changes) - allowed or 'such change'}")
    values = {name: _plain(name, value) for name, value in changes.items()}
    sets = ", ".join(f"{name} = :{name}" for name in values)
    ended = " AND state NOT IN ('succeeded', 'failed', 'stopped')" if "state" in changes else ""
    c.execute(
        f"UPDATE attempts SET {sets} WHERE job = :job AND number = :number{ended}",  # noqa: S608  (our own words, values are parameters)
        {**values, "job": job_pk, "number": number},
    )
    touch(c, job_pk, "job")


def insert_task(
    c: sqlite3.Connection, job_pk: int, number: int, name: str, node: str | None = None
) -> int:
    """The task's pk; inserting it again changes nothing."""
    if not _TASK_NAME.match(name):
        raise UsageError(
            f"{name[:80]!r} is not a task's name", "letters, digits and '-', such as worker-0"
        )
    attempt = attempt_pk(c, job_pk, number)
    c.execute(
        """INSERT INTO tasks (attempt, name, node, state) VALUES (:attempt, :name, :node, 'starting')
           ON CONFLICT (attempt, name) DO NOTHING""",
        {"attempt": attempt, "name": name, "node": node},
    )
    touch(c, job_pk, "job")
    row = c.execute(
        "SELECT pk FROM tasks WHERE attempt = :attempt AND name = :name",
        {"attempt": attempt, "name": name},
    ).fetchone()
    return int(row["pk"])


def task_row(c: sqlite3.Connection, key: TaskKey) -> sqlite3.Row | None:
    """Keys of a task and of what it belongs to, and whether its end was told: task, attempt, job,
    ended.
    """
    row: sqlite3.Row | None = c.execute(
        """SELECT t.pk AS task, a.pk AS attempt, j.pk AS job, t.result IS NOT NULL AS ended FROM jobs j
           JOIN attempts a ON a.job = j.pk JOIN tasks t ON t.attempt = a.pk
           WHERE j.uuid = :uuid AND a.number = :number AND t.name = :task""",
        {"uuid": key.uuid, "number": key.attempt, "task": key.task},
    ).fetchone()
    return row


def heard(c: sqlite3.Connection, times: Mapping[TaskKey, int]) -> None:
    """Note when agents were last heard; a time never goes back."""
    c.executemany(
        """UPDATE tasks SET heard_ns = max(coalesce(heard_ns, 0), :now) WHERE name = :task AND attempt =
             (SELECT a.pk FROM attempts a JOIN jobs j ON j.pk = a.job WHERE j.uuid = :uuid AND a.number = :number)""",
        [
            {"now": ns, "task": k.task, "uuid": k.uuid, "number": k.attempt}
            for k, ns in times.items()
        ],
    )


# -- events


def set_cause(c: sqlite3.Connection, job_pk: int, number: int, cause: JsonObject) -> None:
    """What was found of an attempt while it still runs, before it is ended because of that."""
    c.execute(
        "UPDATE attempts SET cause = :cause WHERE job = :job AND number = :number",
        {"cause": json.dumps(cause), "job": job_pk, "number": number},
    )
    touch(c, job_pk, "job")


def add_event(
    c: sqlite3.Connection, job_pk: int, type_: str, data: JsonMapping, now_ns: int, *,
    attempt: int | None = None, rank: int | None = None, what: str = "job",
) -> None:  # fmt: skip
    c.execute(
        """INSERT INTO events (job, attempt, rank, time_ns, type, data)
           VALUES (:job, :attempt, :rank, :now, :type, :data)""",
        {
            "job": job_pk,
            "attempt": attempt,
            "rank": rank,
            "now": now_ns,
            "type": type_,
            "data": json.dumps(data),
        },
    )
    touch(c, job_pk, what)


# -- tokens


def insert_token(
    c: sqlite3.Connection,
    id_: str,
    hash_: bytes,
    role: str,
    task: TaskKey | None,
    now_ns: int,
    name: str | None = None,
) -> None:
    """`name`: whom it is for, where it is for another machine or a person."""
    c.execute(
        """INSERT INTO tokens (id, hash, role, task, name, created_ns)
           VALUES (:id, :hash, :role, :task, :name, :now)""",
        {
            "id": id_,
            "hash": hash_,
            "role": role,
            "task": str(task) if task else None,
            "name": name,
            "now": now_ns,
        },
    )


def find_token(c: sqlite3.Connection, id_: str) -> Token | None:
    """The token of that public part, ended or not; its secret is for the caller to compare."""
    row = c.execute("SELECT * FROM tokens WHERE id = :id", {"id": id_}).fetchone()
    if row is None:
        return None
    return Token(
        row["id"], row["hash"], row["role"], row["task"], row["ended_ns"], row["name"] or ""
    )


def named_tokens(c: sqlite3.Connection) -> list[sqlite3.Row]:
    """Tokens of other machines and people, newest first; those of agents have no name."""
    return c.execute(
        """SELECT id, name, role, created_ns, ended_ns FROM tokens WHERE name IS NOT NULL
           ORDER BY created_ns DESC, id LIMIT 1000"""
    ).fetchall()


def revoke_token(c: sqlite3.Connection, id_: str, now_ns: int) -> bool:
    """End a token of that public part; False when there is none that has a name."""
    cursor = c.execute(
        "UPDATE tokens SET ended_ns = coalesce(ended_ns, :now) WHERE id = :id AND name IS NOT NULL",
        {"now": now_ns, "id": id_},
    )
    return cursor.rowcount > 0


def end_tokens(c: sqlite3.Connection, task: TaskKey, now_ns: int) -> int:
    """End every token of a task; how many were open."""
    cursor = c.execute(
        "UPDATE tokens SET ended_ns = :now WHERE task = :task AND ended_ns IS NULL",
        {"now": now_ns, "task": str(task)},
    )
    return cursor.rowcount


def open_tokens(c: sqlite3.Connection) -> list[TaskKey]:
    """Tasks that may still send, whatever became of their jobs."""
    rows = c.execute("SELECT DISTINCT task FROM tokens WHERE ended_ns IS NULL AND task IS NOT NULL")
    names = [row["task"] for row in rows]
    return [
        TaskKey(name[:36], int(name[37:].split("-", 1)[0]), name[37:].split("-", 1)[1])
        for name in names
    ]


def may_send(c: sqlite3.Connection, task: str) -> bool:
    """Whether a task has a token that has not ended, so that more of it is expected."""
    found = c.execute(
        "SELECT 1 FROM tokens WHERE task = :task AND ended_ns IS NULL LIMIT 1", {"task": task}
    )
    return found.fetchone() is not None


def any_may_send(c: sqlite3.Connection, uuid: str) -> bool:
    """Likewise of all tasks of a job."""
    wanted = "SELECT 1 FROM tokens WHERE task >= :low AND task < :high AND ended_ns IS NULL LIMIT 1"
    return c.execute(wanted, token_range(uuid)).fetchone() is not None


def token_range(uuid: str) -> dict[str, str]:
    """Between which words the tasks of a job lie."""
    # "." follows "-": every key that starts with the uuid and a dash
    return {"low": f"{uuid}-", "high": f"{uuid}."}


# -- rows to nouns


def _union(known: list[str], more: Iterable[str]) -> list[str]:
    joined = dict.fromkeys([*known, *(str(tag)[:TAG_CHARS_MAX] for tag in more)])
    return list(joined)[:TAGS_MAX]


def _plain(name: str, value: object) -> Any:
    if name in ("cause", "findings", "retry"):
        return None if value is None else json.dumps(value)
    return str(value) if name == "state" else value


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _job(row: sqlite3.Row, read: Callable[[str], JobSpec] = read_spec) -> Job:
    if row["spec_crc"] is not None and spec_crc(row["spec"]) != row["spec_crc"]:
        raise ValueError(f"the spec of {row['id']} is damaged")  # `row_repair` tells of it
    return Job(
        pk=row["pk"], id=row["id"], uuid=row["uuid"], spec=read(row["spec"]), state=State(row["state"]),
        state_since_ns=row["state_since_ns"], submitted_ns=row["submitted_ns"], started_ns=row["started_ns"],
        ended_ns=row["ended_ns"], exit_code=row["exit_code"], signal=row["signal"],
        stop_requested_ns=row["stop_requested_ns"], stop_signal=row["stop_signal"],
        tags=[] if row["tags"] == "[]" else json.loads(row["tags"]), config=_json(row["config"]),
        name=row["name"], star=bool(row["star"]), bug=bool(row["bug"]), description=row["description"],
        cause=_json(row["cause"]),
    )  # fmt: skip


def _attach_attempts(c: sqlite3.Connection, jobs: dict[int, Job]) -> None:
    """Attempts, tasks and processes of all these jobs, with three queries per thousand jobs."""
    keys = list(jobs)
    for start in range(0, len(keys), 1000):
        _attach_some(c, jobs, keys[start : start + 1000])


def _attach_some(c: sqlite3.Connection, jobs: dict[int, Job], keys: list[int]) -> None:
    marks = ", ".join("?" * len(keys))
    attempts: dict[int, Attempt] = {}
    tasks: dict[int, Task] = {}
    for row in c.execute(
        f"SELECT * FROM attempts WHERE job IN ({marks}) ORDER BY job, number",  # noqa: S608  (our own words)
        keys,
    ):
        attempts[row["pk"]] = _attempt(row)
        jobs[row["job"]].attempts.append(attempts[row["pk"]])
    below = f"SELECT pk FROM attempts WHERE job IN ({marks})"  # noqa: S608  (our own words, values are parameters)
    for row in c.execute(
        f"SELECT * FROM tasks WHERE attempt IN ({below}) ORDER BY attempt, pk",  # noqa: S608  (our own words)
        keys,
    ):
        task = Task(row["name"], row["node"], row["state"], row["heard_ns"], _json(row["result"]))
        task.agent, task.held = _json(row["agent"]), _json(row["held"])
        tasks[row["pk"]] = task
        attempts[row["attempt"]].tasks.append(tasks[row["pk"]])
    rows = c.execute(
        f"SELECT * FROM processes WHERE task IN (SELECT pk FROM tasks WHERE attempt IN ({below})) ORDER BY task, rank",  # noqa: S608  (our own words, values are parameters)
        keys,
    )
    for row in rows:
        tasks[row["task"]].processes.append(_process(row))


def _attempt(row: sqlite3.Row) -> Attempt:
    return Attempt(
        number=row["number"], state=State(row["state"]), key=row["key"], engine_id=row["engine_id"],
        engine_word=row["engine_word"], cause=_json(row["cause"]), exit_code=row["exit_code"], signal=row["signal"],
        findings=_json(row["findings"]),
        created_ns=row["created_ns"], started_ns=row["started_ns"], ended_ns=row["ended_ns"],
        retry=_json(row["retry"]),
    )  # fmt: skip


def _process(row: sqlite3.Row) -> Process:
    return Process(
        rank=row["rank"], local_rank=row["local_rank"], pid=row["pid"], state=row["state"], exit_code=row["exit_code"],
        signal=row["signal"], started_ns=row["started_ns"], ended_ns=row["ended_ns"], reason=row["reason"],
        exception=_json(row["exception"]),
    )  # fmt: skip
