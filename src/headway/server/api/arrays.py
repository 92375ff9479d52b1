"""`/api/arrays…`: submit, show, stop and repeat many jobs as one. Lists them as jobs: `GET
/api/jobs?array=`.
"""

from typing import Annotated

import msgspec

from headway.model.errors import NotFoundError
from headway.model.json_types import JsonObject
from headway.server import contract
from headway.server.app import Route, Services
from headway.server.control.array_verbs import Element
from headway.server.http.auth import Role
from headway.server.http.request import Call, Reply, reply_json
from headway.store import arrays

Index = Annotated[int, msgspec.Meta(ge=0, le=10**9)]


class Job(msgspec.Struct, forbid_unknown_fields=True):
    index: Index
    spec: JsonObject = {}
    env: dict[str, str] = {}


class Submit(msgspec.Struct, forbid_unknown_fields=True):
    uuid: str
    spec: JsonObject
    jobs: list[Job]
    env: dict[str, str] = {}
    find_program: bool = False


class Resubmit(msgspec.Struct, forbid_unknown_fields=True):
    uuid: str
    env: dict[str, str]
    spec: JsonObject = {}
    states: list[str] = []


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """An empty object."""


async def find(services: Services, ref: str) -> str:
    if len(ref) > 128:
        raise NotFoundError("that is not the id of an array", "`hw ls` lists them")
    return await services.query(arrays.find, ref)


async def show(services: Services, uuid: str, status: int = 200, **more: object) -> Reply:
    return reply_json({**await services.query(arrays.array_object, uuid), **more}, status)


async def submit(call: Call) -> Reply:
    asked = call.read(Submit)
    jobs = [Element(job.index, job.spec, job.env) for job in asked.jobs]
    uuid = await call.services.control.submit_array(
        asked.uuid, asked.spec, asked.env, jobs, find_program=asked.find_program
    )
    return await show(call.services, uuid, 201)


async def show_array(call: Call) -> Reply:
    return await show(call.services, await find(call.services, call.params["ref"]))


async def abort(call: Call) -> Reply:
    call.read(Nothing)
    uuid = await find(call.services, call.params["ref"])
    return await show(call.services, uuid, stopped=await call.services.control.abort_array(uuid))


async def resubmit(call: Call) -> Reply:
    asked = call.read(Resubmit)
    old = await find(call.services, call.params["ref"])
    uuid = await call.services.control.resubmit_array(
        old, asked.uuid, asked.spec, asked.env, asked.states
    )
    return await show(call.services, uuid, 201)


ROUTES = [
    Route("POST", "/api/arrays", Role.OPERATE, submit, answer=contract.JobArray),
    Route("GET", "/api/arrays/{ref}", Role.READ, show_array, answer=contract.JobArray),
    Route("POST", "/api/arrays/{ref}/abort", Role.OPERATE, abort, answer=contract.JobArray),
    Route("POST", "/api/arrays/{ref}/resubmit", Role.OPERATE, resubmit, answer=contract.JobArray),
]
