"""`/api/jobs…`: submit, list, show, stop, run again, delete. Looks the job up, then asks `control`
or the store.

What a job may ask for is checked by `control`, so that every way in has the same rules.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict
from sqlite3 import Connection
from typing import Annotated

import msgspec

from headway.model.errors import UsageError
from headway.model.ids import check_name
from headway.model.json_types import JsonObject
from headway.model.limits import DESCRIPTION_CHARS_MAX, DURATION_S_MAX, JOBS_LISTED_MAX
from headway.server import contract
from headway.server.api import page
from headway.server.app import Route, Services
from headway.server.control import submit_check
from headway.server.http.auth import Role
from headway.server.http.request import Call, Count, Reply, encode_rows, reply_json
from headway.store import arrays, catalog, job_reference, listing, query
from headway.wire import filter_language
from headway.wire.batch import TaskKey

_SIGNAL_MAX = 64
Rows = Callable[[Connection, catalog.JobFilter, int], list[JsonObject]]


class Submit(msgspec.Struct, forbid_unknown_fields=True):
    uuid: str
    spec: JsonObject
    env: dict[str, str] = {}
    find_program: bool = False


class Plan(msgspec.Struct, forbid_unknown_fields=True):
    spec: JsonObject
    env: dict[str, str] = {}


class Resubmit(msgspec.Struct, forbid_unknown_fields=True):
    uuid: str
    spec: JsonObject = {}
    env: dict[str, str] | None = None


class Signal(msgspec.Struct, forbid_unknown_fields=True):
    signal: int


class Attach(msgspec.Struct, forbid_unknown_fields=True):
    rank: Annotated[int, msgspec.Meta(ge=0)] | None = None
    task: Annotated[str, msgspec.Meta(max_length=64)] | None = None


class Filter(msgspec.Struct, forbid_unknown_fields=True):
    state: list[str] = []
    cluster: str | None = None
    experiment: str | None = None
    since: Annotated[float, msgspec.Meta(ge=0, le=DURATION_S_MAX * 100)] | None = None
    match: str | None = None
    where: str | None = None
    limit: Count = JOBS_LISTED_MAX
    array: str | None = None
    fold: bool = False
    brief: bool = False
    older: Annotated[float, msgspec.Meta(ge=0, le=DURATION_S_MAX * 100)] | None = None
    tag: list[str] = []
    config: bool = False  # with what was set and asked: `config`, flat, and `command`
    usage: bool = False  # with the last sample of usage


class Marks(msgspec.Struct, forbid_unknown_fields=True):
    """What people say of a job afterwards; what is not there stays as it is."""

    tags: list[str] | msgspec.UnsetType = msgspec.UNSET
    star: bool | msgspec.UnsetType = msgspec.UNSET
    bug: bool | msgspec.UnsetType = msgspec.UNSET
    description: (
        Annotated[str, msgspec.Meta(max_length=DESCRIPTION_CHARS_MAX)] | msgspec.UnsetType
    ) = msgspec.UNSET
    name: str | msgspec.UnsetType = msgspec.UNSET


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """An empty object."""


async def show(services: Services, pk: int, status: int = 200) -> Reply:
    found = await services.query(query.job_object, pk, services.paths, time.time_ns())
    found["page"] = page.address(services.about["url"], found["id"])
    if found["state"] in ("running", "stopping", "held"):
        found["attach"] = services.control.attach_words(found)
    for attempt in found["attempts"]:
        for task in attempt["tasks"]:
            key = TaskKey(found["uuid"], attempt["number"], task["name"])
            task |= services.ways.of(key)
    return reply_json(found, status)


# -- handlers


async def list_jobs(call: Call) -> Reply:
    asked = call.query(Filter)
    now_ns = time.time_ns()
    since_ns = None if asked.since is None else now_ns - int(asked.since * 1e9)
    chosen = catalog.JobFilter(
        asked.state, asked.cluster, asked.experiment, since_ns, asked.match, asked.limit
    )
    if asked.array is not None:
        chosen.array = await call.services.query(arrays.find, asked.array[:128])
    if asked.where is not None:
        chosen.where = filter_language.parse(asked.where)
        chosen.now_ns = now_ns
    if asked.older is not None:
        chosen.before_ns = now_ns - int(asked.older * 1e9)
    chosen.tags = asked.tag
    # a condition is about jobs, so that the jobs of an array are shown one by one
    folds = asked.fold and asked.array is None and asked.where is None
    if asked.brief:
        rows = listing.folded if folds else listing.rows
    else:
        rows = query.folded_rows if folds else query.job_rows
    # a pattern may take seconds (store/pattern.py), and short reads are not to wait for it
    ask = call.services.slow_query if asked.match else call.services.query
    url = None if asked.brief else call.services.about["url"]
    return Reply(await ask(_encoded, rows, chosen, now_ns, url, asked.config, asked.usage))


def _encoded(
    c: Connection,
    rows: Rows,
    chosen: catalog.JobFilter,
    now_ns: int,
    url: str | None,
    config: bool,
    usage: bool,
) -> bytes:
    """In a reader's thread, too: ten thousand jobs are megabytes. `url`: where the page is, for rows that tell it."""
    found = rows(c, chosen, now_ns)
    if config or usage:
        found = listing.extend(c, found, config=config, usage=usage)
    for row in found if url else ():
        if "page" in row:
            row["page"] = page.address(url, row["id"])
    return encode_rows(found)


async def submit(call: Call) -> Reply:
    asked = call.read(Submit)
    services, seen = call.services, dict[int, JsonObject]()

    def look(c: Connection, pk: int) -> None:
        seen[pk] = query.job_object(c, pk, services.paths, time.time_ns())
        seen[pk]["page"] = page.address(services.about["url"], seen[pk]["id"])

    job = await services.control.submit(
        asked.uuid, asked.spec, asked.env, find_program=asked.find_program, look=look
    )
    return reply_json(seen[job.pk], 201) if job.pk in seen else await show(services, job.pk, 201)


async def plan(call: Call) -> Reply:
    asked = call.read(Plan)
    found = await call.services.control.plan(asked.spec, asked.env)
    return reply_json({"text": found.describe(), "plan": asdict(found), "gpus": found.gpus})


async def show_job(call: Call) -> Reply:
    return await show(call.services, await call.services.find(call))


class Reference(msgspec.Struct, forbid_unknown_fields=True):
    ref: Annotated[str, msgspec.Meta(max_length=128)]


async def find(call: Call) -> Reply:
    """What a person means by a word: an id or its ending, a name, or `last`."""
    ref = call.query(Reference).ref
    return reply_json(await call.services.query(job_reference.find_one, ref))


async def mark(call: Call) -> Reply:
    """Change name, tags, star, bug or description. The id stays as it is."""
    asked = call.read(Marks)
    pk = await call.services.find(call)
    changes: JsonObject = msgspec.structs.asdict(asked)
    changes = {name: value for name, value in changes.items() if value is not msgspec.UNSET}
    if "tags" in changes:
        submit_check.tags(changes["tags"])
    if "name" in changes:
        check_name(changes["name"])
    write = call.services.store.write(lambda c: catalog.set_marks(c, pk, changes))
    await asyncio.wrap_future(write)
    return await show(call.services, pk)


async def provenance(call: Call) -> Reply:
    return reply_json(await call.services.query(query.provenance, await call.services.find(call)))


async def events(call: Call) -> Reply:
    return reply_json(await call.services.query(query.events, await call.services.find(call)))


async def abort(call: Call) -> Reply:
    call.read(Nothing)
    job = await call.services.control.abort(await call.services.find(call))
    return await show(call.services, job.pk)


async def release(call: Call) -> Reply:
    call.read(Nothing)
    job = await call.services.control.release(await call.services.find(call))
    return await show(call.services, job.pk)


async def attach(call: Call) -> Reply:
    asked = call.query(Attach)
    pk = await call.services.find(call)
    return reply_json({"argv": await call.services.control.attach(pk, asked.rank, asked.task)})


async def signal(call: Call) -> Reply:
    number = call.read(Signal).signal
    if not 1 <= number <= _SIGNAL_MAX:
        raise UsageError(f"there is no signal {number}", "2 is SIGINT, 15 is SIGTERM, 9 is SIGKILL")
    job = await call.services.control.signal(await call.services.find(call), number)
    return await show(call.services, job.pk)


async def resubmit(call: Call) -> Reply:
    asked = call.read(Resubmit)
    job = await call.services.control.resubmit(
        await call.services.find(call), asked.uuid, asked.spec, asked.env
    )
    return await show(call.services, job.pk, 201)


async def delete(call: Call) -> Reply:
    await call.services.control.delete(await call.services.find(call))
    return reply_json({})


ROUTES = [
    Route("GET", "/api/jobs", Role.READ, list_jobs, answer=list[contract.JobRow]),
    Route("POST", "/api/jobs", Role.OPERATE, submit, answer=contract.Job),
    Route("GET", "/api/find", Role.READ, find, answer=contract.Found),
    Route("POST", "/api/plan", Role.OPERATE, plan, answer=contract.Plan),
    Route("GET", "/api/jobs/{ref}", Role.READ, show_job, answer=contract.Job),
    Route("DELETE", "/api/jobs/{ref}", Role.OPERATE, delete, answer=contract.Empty),
    Route("PATCH", "/api/jobs/{ref}", Role.OPERATE, mark, answer=contract.Job),
    Route(
        "GET",
        "/api/jobs/{ref}/provenance",
        Role.READ,
        provenance,
        answer=contract.Provenance | None,
    ),
    Route("GET", "/api/jobs/{ref}/events", Role.READ, events, answer=list[contract.JobEvent]),
    Route("POST", "/api/jobs/{ref}/abort", Role.OPERATE, abort, answer=contract.Job),
    Route("POST", "/api/jobs/{ref}/release", Role.OPERATE, release, answer=contract.Job),
    Route("GET", "/api/jobs/{ref}/attach", Role.OPERATE, attach, answer=contract.Attach),
    Route("POST", "/api/jobs/{ref}/signal", Role.OPERATE, signal, answer=contract.Job),
    Route("POST", "/api/jobs/{ref}/resubmit", Role.OPERATE, resubmit, answer=contract.Job),
]
