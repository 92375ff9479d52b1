"""`POST /write`: InfluxDB's line protocol over HTTP, from Telegraf and its clients, for jobs of this server.

To which job a line belongs is said by its tag `job`, or by `db` (`bucket`) of the address: an id, or a unique ending of
one. The token of role ingest is given as InfluxDB's token (`Authorization: Token …`) or as the password. Bad lines are
counted, the good ones of the same request are kept.
"""

import asyncio
import os
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from headway.model.errors import HeadwayError, UsageError
from headway.model.job import Job
from headway.model.limits import INGEST_BYTES_MAX, LINE_JOBS_MAX
from headway.model.record import FORMAT_VERSION, OPEN, RECORDS
from headway.server import contract
from headway.server.app import Route
from headway.server.http.auth import Role
from headway.server.http.request import Call, Refusal, Reply
from headway.store import catalog
from headway.wire.batch import Part, TaskKey
from headway.wire.frame import encode, encode_json, encode_schema, metrics_head, metrics_struct
from headway.wire.line_protocol import PRECISIONS, Line, Steps, parse

_UUID_CHARS = 36  # a task's key begins with the uuid of its job
JOB_TAGS = ("job", "headway_job")
_RAND = os.urandom(3).hex()


class Asked(msgspec.Struct):
    db: str = ""
    bucket: str = ""
    org: str = ""
    precision: str = ""
    u: str = ""
    p: str = ""
    rp: str = ""
    consistency: str = ""


class Feed:
    """The stream of one task that lines go into. One request at a time writes to it."""

    def __init__(self, task: TaskKey) -> None:
        self.task, self.lock = task, asyncio.Lock()
        self.steps = Steps()
        self.name = f"metrics-0-{os.getpid()}-{_RAND}.0"
        self.position = 0
        self.schemas: dict[tuple[str, ...], tuple[int, Any]] = {}

    def frames(self, lines: Iterable[Line]) -> bytes:
        out: list[bytes] = []
        if not self.position:
            opening = {
                "version": FORMAT_VERSION, "stream": self.name, "kind": "metrics", "rank": 0, "pid": os.getpid(),
                "start": None, "segment": 0, "time_ns": time.time_ns(),
            }  # fmt: skip
            out.append(encode_json(OPEN, opening))
        now_ns = time.time_ns()
        for line in lines:
            names = tuple(line.values)
            known = self.schemas.get(names)
            if known is None:
                number = len(self.schemas)
                known = self.schemas[names] = (number, metrics_struct(len(names)).pack)
                out.append(encode_schema(number, names))
            time_ns = (
                line.time_ns if line.time_ns is not None and 0 < line.time_ns < 2**62 else now_ns
            )
            head = metrics_head(len(names), known[0])
            body = known[1](*head, self.steps.of(line), time_ns, *line.values.values())
            out.append(encode(body[0], body[6:]))
        return b"".join(out)


_feeds: dict[str, Feed] = {}  # by the job's uuid


async def write(call: Call) -> Reply:
    """Line protocol for jobs: 204, or 400 where some lines are not kept."""
    asked = call.query(Asked)
    if asked.precision not in PRECISIONS:
        valid = ", ".join(filter(None, PRECISIONS))
        raise UsageError(f"precision {asked.precision[:20]!r} is not known", f"valid: {valid}")
    where = asked.db or asked.bucket or await _own_job(call)
    found, bad = await asyncio.to_thread(_read, call.body, PRECISIONS[asked.precision], where)
    for ref, lines in found.items():
        try:
            await _keep(call, ref, lines)
        except (HeadwayError, Refusal) as error:
            bad.append(f"{len(lines)} lines of job {ref[:60]!r}: {error}")
    if bad:
        text = f"partial write: {len(bad)} lines are not kept; the first: {bad[0][:300]}"
        hint = (
            "a line needs the tag job=ID, or the address ?db=ID, or a token that has the job's name"
        )
        raise UsageError(text, hint)
    return Reply(b"", 204)


async def _own_job(call: Call) -> str:
    """The job of a caller that names none: that of a task's token, or that which a token was named
    after (`hw token create --name ID`).
    """
    caller = call.caller
    if caller.task is not None:
        return caller.task[:_UUID_CHARS]
    if caller.role is not Role.INGEST or not caller.name:
        return ""
    try:
        await call.services.find_ref(caller.name)
    except HeadwayError:
        return ""  # a name like any other
    return str(caller.name)


def _read(body: bytes, unit_ns: int, where: str) -> tuple[dict[str, list[Line]], list[str]]:
    found: dict[str, list[Line]] = {}
    bad: list[str] = []
    for raw in body.decode("utf-8", "replace").splitlines():
        text = raw.strip()
        if not text or text[0] == "#":
            continue
        try:
            line = parse(text, unit_ns, JOB_TAGS)
        except (ValueError, OverflowError) as error:
            bad.append(f"{error}: {text[:80]!r}")
            continue
        job = next((line.tags[name] for name in JOB_TAGS if name in line.tags), where)
        if not job:
            bad.append(f"it names no job: {text[:80]!r}")
        elif line.values:
            found.setdefault(job, []).append(line)
    return found, bad


async def _keep(call: Call, ref: str, lines: list[Line]) -> None:
    pk = await call.services.find_ref(ref)
    job = await call.services.query(catalog.load_job, pk)
    _check_caller(call, job)
    if not job.attempts:
        raise UsageError(f"{job.id} has not started yet")
    if len(_feeds) > LINE_JOBS_MAX:
        _feeds.clear()
    last = job.attempts[-1]
    task = TaskKey(job.uuid, last.number, last.tasks[0].name if last.tasks else "worker-0")
    feed = _feeds.get(job.uuid)
    if feed is None or feed.task != task:
        feed = _feeds[job.uuid] = Feed(task)
        feed.name = f"metrics-0-{os.getpid()}-{os.urandom(3).hex()}.0"
    async with feed.lock:
        data = await asyncio.to_thread(feed.frames, lines)
        part = Part(feed.name, RECORDS, feed.position, data)
        result = await asyncio.wrap_future(call.services.store.ingest(task, [part]))
        if part.stream in result.refused:
            del _feeds[job.uuid]
            raise UsageError(result.refused[part.stream])
        feed.position += len(data)


def _check_caller(call: Call, job: Job) -> None:
    """A task's token is for its own job; that of another machine for the jobs that this machine told
    of. Any other token of role ingest is one that a person made for jobs of this server.
    """
    caller = call.caller
    if caller.role is not Role.INGEST:
        return
    if caller.task is not None:
        if not caller.task.startswith(f"{job.uuid}-"):
            raise Refusal(403, "forbidden", "this token belongs to another task")
        return
    is_machine = call.services.guests.is_known(caller.name)
    if job.spec.guest_of != (caller.name if is_machine else None):
        raise Refusal(403, "forbidden", "this token belongs to another machine")


async def ping(call: Call) -> Reply:
    """Clients of InfluxDB ask whether anybody is there."""
    reply = Reply(b"", 204)
    reply.headers.append((b"x-influxdb-version", b"1.8-headway"))
    return reply


ROUTES = [
    Route(
        "POST", "/write", Role.INGEST, write, body_bytes_max=INGEST_BYTES_MAX, answer=contract.Raw
    ),
    Route(
        "POST",
        "/api/v2/write",
        Role.INGEST,
        write,
        body_bytes_max=INGEST_BYTES_MAX,
        answer=contract.Raw,
    ),
    Route("GET", "/ping", Role.INGEST, ping, answer=contract.Raw),
]
