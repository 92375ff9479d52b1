"""`/api/gc`: free the space of deleted jobs, of ended ones that are older than asked for or set,
and of code and data that no job needs, here and in the folders of clusters.
"""

from functools import partial
from typing import Annotated

import msgspec

from headway.model.errors import UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import CLUSTERS_MAX
from headway.server import contract
from headway.server.app import Route
from headway.server.http.auth import Role
from headway.server.http.request import Call, Reply, reply_json

DAYS_MAX = 36_500


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    older_than_days: float | None = None
    dry_run: bool = False
    clusters: Annotated[dict[str, JsonObject], msgspec.Meta(max_length=CLUSTERS_MAX)] = {}


async def gc(call: Call) -> Reply:
    asked = call.read(Asked)
    days = asked.older_than_days
    if days is None:
        days = call.services.settings.get("retention_days") or None  # 0 keeps everything
    elif not 0 <= days <= DAYS_MAX:
        raise UsageError(f"older_than_days is {days:g}", f"valid: 0 to {DAYS_MAX}")
    services = call.services
    removed = await services.slow_readers.run(
        partial(services.store.gc, days, dry_run=asked.dry_run)
    )
    code = await services.slow_readers.run(partial(services.store.gc_code, dry_run=asked.dry_run))
    brought = await services.slow_readers.run(
        partial(services.store.gc_folders, dry_run=asked.dry_run)
    )
    artifact_bytes = await services.slow_readers.run(
        partial(services.store.gc_artifacts, dry_run=asked.dry_run)
    )
    clusters = await services.control.collect(asked.clusters, dry_run=asked.dry_run)
    return reply_json(
        {
            "jobs": len(removed.jobs),
            "bytes": removed.bytes + code.bytes + brought.bytes + artifact_bytes,
            "ids": removed.jobs,
            "snapshots": code.snapshots,
            "folders": brought.folders,
            "artifact_bytes": artifact_bytes,
            "clusters": clusters,
        }
    )


ROUTES = [Route("POST", "/api/gc", Role.ADMIN, gc, answer=contract.Collected)]
