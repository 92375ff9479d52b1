"""`/api/clusters`: what the clusters that a caller has configured have, and whether a job would fit
there.
"""

from typing import Annotated

import msgspec

from headway.model.json_types import JsonObject
from headway.model.limits import CLUSTERS_MAX
from headway.server import contract
from headway.server.app import Route
from headway.server.http.auth import Role
from headway.server.http.request import Call, Reply, reply_json
from headway.store import catalog


class Survey(msgspec.Struct, forbid_unknown_fields=True):
    clusters: Annotated[dict[str, JsonObject], msgspec.Meta(max_length=CLUSTERS_MAX)]
    spec: JsonObject | None = None


async def survey(call: Call) -> Reply:
    asked = call.read(Survey)
    return reply_json(await call.services.control.survey(asked.clusters, asked.spec))


async def survey_used(call: Call) -> Reply:
    """The same of the clusters that jobs have used, as their newest job defines them."""
    found = await call.services.query(catalog.cluster_definitions, CLUSTERS_MAX)
    return reply_json(await call.services.control.survey(found, None))


# The definitions say which program is asked, so this is for those who may run programs.
ROUTES = [
    Route("GET", "/api/clusters", Role.READ, survey_used, answer=list[contract.Cluster]),
    Route("POST", "/api/clusters", Role.OPERATE, survey, answer=list[contract.Cluster]),
]
