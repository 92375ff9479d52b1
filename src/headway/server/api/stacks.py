"""`/api/jobs/{ref}/stacks`: the stacks of all ranks, merged, as `hw stacks --json` tells them."""

import msgspec

from headway.diagnose import stacks
from headway.model.errors import RefusedError
from headway.model.job import Job, State
from headway.model.json_types import JsonObject
from headway.server import contract
from headway.server.app import Route
from headway.server.health.stack_requests import Facts
from headway.server.http.auth import Role
from headway.server.http.request import Call, Reply, reply_json
from headway.store.jsonform import iso

_ALIVE = (State.RUNNING, State.STOPPING, State.UNKNOWN)


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    native: bool = False


async def ask(call: Call) -> Reply:
    """Ask all ranks now."""
    asked = call.read(Asked)
    job = await call.services.control.load(await call.services.find(call))
    if job.spec.guest_of is not None:
        raise RefusedError(
            f"{job.id} runs on another machine, and is only shown here",
            f"there: hw stacks {job.id}",
        )
    if job.state not in _ALIVE or job.ended_ns is not None:
        raise RefusedError(
            f"{job.id} is {job.state}: nothing of it runs that could be asked",
            f"what was kept of it: hw stacks {job.id} --last, and hw why {job.id}",
        )
    _, facts = await call.services.stacks.collect(job, native=asked.native)
    return reply_json(answer(job, facts))


async def last(call: Call) -> Reply:
    """What was collected last; null where nothing ever was."""
    job = await call.services.control.load(await call.services.find(call))
    found = await call.services.stacks.last(job)
    return reply_json(None if found is None else answer(job, found[1]))


def answer(job: Job, facts: Facts) -> JsonObject:
    merged = stacks.merge(facts)
    times = [fact["time_ns"] for fact in facts.values()]
    attempt = job.attempts[-1] if job.attempts else None
    silent = [t.name for t in attempt.tasks if t.name not in facts] if attempt else []
    return {
        "id": job.id,
        "time": iso(min(times)) if times else None,
        "how": ", ".join(merged.how) or None,
        "groups": msgspec.to_builtins(merged.groups),
        "odd": merged.odd,
        "missing": [one.rank for one in merged.missing],
        "others": msgspec.to_builtins(merged.others),
        "missing_why": msgspec.to_builtins(merged.missing),
        "verdict": merged.verdict,
        "split": merged.split,
        "ranks": merged.ranks,
        "took_s": merged.took_s,
        "native": merged.native,
        "silent_tasks": silent,
        "tree": msgspec.to_builtins(stacks.tree(merged.groups)),
    }


ROUTES = [
    Route("GET", "/api/jobs/{ref}/stacks", Role.READ, last, answer=contract.Stacks | None),
    Route("POST", "/api/jobs/{ref}/stacks", Role.OPERATE, ask, answer=contract.Stacks),
]
