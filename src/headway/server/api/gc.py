"""`/api/gc`: free the space of deleted jobs, and of ended ones that are older than asked for or set."""

from functools import partial

import msgspec

from headway.model.errors import UsageError
from headway.server.app import Route
from headway.server.auth import Role
from headway.server.call import Call, Reply, reply_json

DAYS_MAX = 36_500


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    older_than_days: float | None = None
    dry_run: bool = False


async def gc(call: Call) -> Reply:
    asked = call.read(Asked)
    days = asked.older_than_days
    if days is None:
        days = call.services.settings.get("retention_days") or None  # 0 keeps everything
    elif not 0 <= days <= DAYS_MAX:
        raise UsageError(f"older_than_days is {days:g}", f"valid: 0 to {DAYS_MAX}")
    services = call.services
    removed = await services.slow_readers.run(partial(services.store.gc, days, dry_run=asked.dry_run))
    code = await services.slow_readers.run(partial(services.store.gc_code, dry_run=asked.dry_run))
    brought = await services.slow_readers.run(partial(services.store.gc_folders, dry_run=asked.dry_run))
    return reply_json(
        {
            "jobs": len(removed.jobs),
            "bytes": removed.bytes + code.bytes + brought,
            "ids": removed.jobs,
            "snapshots": code.snapshots,
        }
    )


ROUTES = [Route("POST", "/api/gc", Role.ADMIN, gc)]
