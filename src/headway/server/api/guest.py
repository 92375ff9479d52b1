"""`/agent/guests…`: what servers of other machines call, for the jobs that are shown here too
(`guest.py`).
"""

import asyncio

import msgspec

from headway.model.errors import UsageError
from headway.model.limits import GUEST_JOBS_MAX, POLL_WAIT_S
from headway.server import contract
from headway.server.app import Route
from headway.server.control import submit_check as checks
from headway.server.http.auth import Caller, Role
from headway.server.http.request import Call, Refusal, Reply, reply_json
from headway.server.monitor import guests

_OURS = "this-machine"  # who comes through the unix socket, or with an admin's token


class Poll(msgspec.Struct):
    jobs: list[str]
    done: list[int] = []
    wait_s: float = POLL_WAIT_S


def owner_of(caller: Caller) -> str:
    """The name of a machine. A token of one task may not speak for others."""
    if caller.role is Role.INGEST and (caller.task is not None or not caller.name):
        raise Refusal(403, "forbidden", "this token belongs to one task")
    return caller.name or _OURS


async def tell(call: Call) -> Reply:
    """A job as its own machine sees it → `{id, stop}`; `stop`: somebody here wants it to end."""
    owner, told = owner_of(call.caller), call.read(guests.Told)
    told.uuid = checks.job_uuid(told.uuid)
    guests.check(told)
    spec = guests.spec_of(told, owner)
    job = await asyncio.wrap_future(
        call.services.store.write(lambda c: guests.tell(c, owner, told, spec))
    )
    call.services.guests.told(job.uuid, owner)
    return reply_json({"id": job.id, "stop": job.stop_requested_ns is not None})


async def poll(call: Call) -> Reply:
    """`{jobs, done, wait_s}` → `{commands: [{uuid, seq, do, …}], again}`; a sign of life of all of
    them. `again`: jobs to be told again.
    """
    owner, asked = owner_of(call.caller), call.read(Poll)
    if len(asked.jobs) > GUEST_JOBS_MAX:
        raise UsageError(f"{len(asked.jobs)} jobs are too many", f"at most {GUEST_JOBS_MAX}")
    again = call.services.guests.heard(asked.jobs, owner)
    known = [uuid for uuid in asked.jobs if uuid not in set(again)]
    wait_s = 0.0 if again else min(max(asked.wait_s, 0.0), POLL_WAIT_S)
    commands = await call.services.control.commands_for_guests(known, wait_s, asked.done)
    call.services.guests.heard(known, owner)
    return reply_json({"commands": commands, "again": again})


ROUTES = [
    Route("POST", "/agent/guests", Role.INGEST, tell, answer=contract.Guest),
    Route("POST", "/agent/guests/poll", Role.INGEST, poll, answer=contract.GuestPoll),
]
