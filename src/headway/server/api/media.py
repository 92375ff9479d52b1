"""`/api/jobs/{ref}/media`, `…/tracked`: what a job tracked beside its points.

Bytes of a job are data: they go out as attachments that no browser shows or runs in our name.
"""

import sqlite3

import msgspec

from headway.model.errors import NotFoundError
from headway.server import contract
from headway.server.app import Route
from headway.server.http.auth import Role
from headway.server.http.request import Call, Count, Reply, reply_json
from headway.store import tracked

SAFE_TYPES = (
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "image/apng",
    "audio/wav",
    "application/json",
)


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    limit: Count | None = None


class One(msgspec.Struct, forbid_unknown_fields=True):
    number: Count


async def media(call: Call) -> Reply:
    asked = call.query(Asked)
    pk = await call.services.find(call)
    return reply_json(
        await call.services.query(tracked.media_list, pk, asked.name, asked.limit or 1000)
    )


async def media_data(call: Call) -> Reply:
    asked = call.query(One)
    pk = await call.services.find(call)
    found = await call.services.slow_query(tracked.media_data, pk, asked.number)
    if found is None:
        raise NotFoundError(
            f"this job has no media number {asked.number}", "see /api/jobs/ID/media"
        )
    return attachment(found[1], found[0], f"media-{asked.number}")


def attachment(data: bytes, mime: str, name: str) -> Reply:
    kind = mime if mime in SAFE_TYPES else "application/octet-stream"
    reply = Reply(data, content_type=kind.encode())
    safe = "".join(
        char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in name
    )[:100]
    reply.headers += [
        (b"content-disposition", f'attachment; filename="{safe}"'.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", b"sandbox; default-src 'none'"),
    ]
    return reply


def read_tracked(c: sqlite3.Connection, pk: int) -> dict[str, object]:
    return {
        "definitions": tracked.definitions(c, pk),
        "summary": tracked.summary(c, pk),
        "data": tracked.data(c, pk),
    }


async def show_tracked(call: Call) -> Reply:
    return reply_json(await call.services.query(read_tracked, await call.services.find(call)))


ROUTES = [
    Route("GET", "/api/jobs/{ref}/media", Role.READ, media, answer=list[contract.Media]),
    Route("GET", "/api/jobs/{ref}/media/data", Role.READ, media_data, answer=contract.Raw),
    Route("GET", "/api/jobs/{ref}/tracked", Role.READ, show_tracked, answer=contract.Tracked),
]
