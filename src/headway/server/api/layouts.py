"""`/api/layouts`: what people arranged on the page, for everybody who sees this server."""

import asyncio
import time
from typing import Annotated, Literal

import msgspec

from headway.model.errors import UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import PAGE_LAYOUT_BYTES_MAX
from headway.server import contract
from headway.server.app import Route
from headway.server.http.auth import Role
from headway.server.http.request import Call, Reply, encode, reply_json
from headway.store import page_layouts

_Kind = Literal["view", "charts"]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class AskedLayouts(msgspec.Struct, forbid_unknown_fields=True):
    kind: _Kind
    name: _Name | None = None


class KeptLayout(msgspec.Struct, forbid_unknown_fields=True):
    kind: _Kind
    name: _Name
    data: JsonObject | None  # null removes it


async def read(call: Call) -> Reply:
    """`[{name data updated_at}]`: saved searches (`view`), or the layout of an experiment's charts (`charts`)."""
    asked = call.query(AskedLayouts)
    return reply_json(await call.services.query(page_layouts.read, asked.kind, asked.name))


async def keep(call: Call) -> Reply:
    """`{kind, name, data}` → all of this kind: keeps a layout for everybody; with `data` null it is removed."""
    asked = call.read(KeptLayout)
    if asked.data is not None and len(encode(asked.data)) > PAGE_LAYOUT_BYTES_MAX:
        raise UsageError(
            "the layout is too large", f"it may have {PAGE_LAYOUT_BYTES_MAX} bytes as JSON"
        )
    now_ns = time.time_ns()
    write = call.services.store.write(
        lambda c: page_layouts.write(c, asked.kind, asked.name, asked.data, now_ns)
    )
    await asyncio.wrap_future(write)
    return reply_json(await call.services.query(page_layouts.read, asked.kind, None))


ROUTES = [
    Route("GET", "/api/layouts", Role.READ, read, answer=list[contract.PageLayout]),
    Route("POST", "/api/layouts", Role.OPERATE, keep, answer=list[contract.PageLayout]),
]
