"""`/agent/…`: what shippers call. Data in, commands out; every call is a sign of life.

Fields that we do not know are let pass: an agent may be newer than we are.
"""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import msgspec

from headway.model.json_types import JsonObject
from headway.model.limits import INGEST_BYTES_MAX, POLL_WAIT_S
from headway.server import contract
from headway.server.app import Route
from headway.server.http.auth import Role
from headway.server.http.request import Call, Refusal, Reply, check, parse_json, reply_json
from headway.wire import batch
from headway.wire.batch import TaskKey

_DECODE_INLINE_BYTES = 64 * 1024  # below this a thread costs more than the checksums


class Poll(msgspec.Struct):
    task: TaskKey
    wait_s: float = POLL_WAIT_S
    done: list[int] = []
    now_ns: int | None = None
    lag_bytes: int | None = None
    trouble: str = ""  # why a better way to us does not work


async def ingest(call: Call) -> Reply:
    """A batch becomes durable, then is answered (P3). The room that its bytes take is counted until
    then.
    """
    if len(call.body) < _DECODE_INLINE_BYTES:
        task, _, parts = batch.decode(call.body)
    else:
        task, _, parts = await asyncio.to_thread(batch.decode, call.body)
    check_task(call, task)
    await call.services.outbox.keep(task, call.body, parts)
    result = await asyncio.wrap_future(call.services.store.ingest(task, parts))
    call.services.control.heard(task)
    call.services.ways.note(task, call.caller.way)
    return reply_json({"acks": result.acks, "refused": result.refused, "now_ns": time.time_ns()})


async def poll(call: Call) -> Reply:
    """Commands for a task; waits for one, but not when the server stops."""
    asked = call.read(Poll)
    check_task(call, asked.task)
    call.services.ways.note(asked.task, call.caller.way, asked.trouble)
    wait_s = min(max(asked.wait_s, 0.0), POLL_WAIT_S * 3)
    commands = await _unless_stopping(
        call, call.services.control.commands_for(asked.task, wait_s, asked.done)
    )
    return reply_json({"commands": commands, "now_ns": time.time_ns()})


async def register(call: Call) -> Reply:
    """A script that was started without us becomes a job. The kernel says that it is ours; it has
    no token yet.
    """
    body = check(parse_json(call.body), dict[str, object])
    return reply_json(await call.services.control.register(body))


def check_task(call: Call, task: TaskKey) -> None:
    """An agent speaks of its own task; another machine of the jobs that it told of, and tells again
    what we forgot.
    """
    caller = call.caller
    if caller.role is not Role.INGEST or caller.task == str(task):
        return
    if caller.task is None and caller.name:
        owner = call.services.guests.owner(task.uuid)
        if owner is None:
            raise Refusal(404, "not_found", "this job has not been told here")
        if owner == caller.name:
            return
    raise Refusal(403, "forbidden", "this token belongs to another task")


async def _unless_stopping(
    call: Call, work: Coroutine[Any, Any, list[JsonObject]]
) -> list[JsonObject]:
    asked = asyncio.create_task(work)
    stopping = asyncio.create_task(call.services.stopping.wait())
    try:
        await asyncio.wait({asked, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return asked.result() if asked.done() else []
    finally:
        asked.cancel()
        stopping.cancel()


ROUTES = [
    Route(
        "POST",
        "/agent/ingest",
        Role.INGEST,
        ingest,
        body_bytes_max=INGEST_BYTES_MAX,
        answer=contract.Ingested,
    ),
    Route("POST", "/agent/poll", Role.INGEST, poll, answer=contract.Poll),
    Route(
        "POST", "/agent/register", Role.ADMIN, register, unix_only=True, answer=contract.Registered
    ),
]
