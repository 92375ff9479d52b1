"""`/api/clusters`: what the clusters that a caller has configured have, and whether a job would fit
there.
"""

from typing import Annotated, Any

import msgspec

from headway.model.limits import CLUSTERS_MAX
from headway.server import contract
from headway.server.app import Route
from headway.server.http.auth import Role
from headway.server.http.request import Call, Reply, reply_json


class Survey(msgspec.Struct, forbid_unknown_fields=True):
    clusters: Annotated[dict[str, dict[str, Any]], msgspec.Meta(max_length=CLUSTERS_MAX)]
    spec: dict[str, Any] | None = None


async def survey(call: Call) -> Reply:
    asked = call.read(Survey)
    return reply_json(await call.services.control.survey(asked.clusters, asked.spec))


# The definitions say which program is asked, so this is for those who may run programs.
ROUTES = [Route("POST", "/api/clusters", Role.OPERATE, survey, answer=list[contract.Cluster])]
