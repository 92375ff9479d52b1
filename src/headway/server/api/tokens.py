"""`/api/tokens`: tokens for other machines and people. Made, listed, ended; only their hashes are
kept.
"""

import asyncio
import time

import msgspec

from headway.model.errors import NotFoundError, UsageError
from headway.model.ids import check_name
from headway.server import contract
from headway.server.app import Route
from headway.server.http.auth import LOOPBACK_ONLY, Role, mint
from headway.server.http.request import Call, Reply, reply_json
from headway.store import catalog, jsonform


class Create(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    role: str = "ingest"


async def list_tokens(call: Call) -> Reply:
    rows = await call.services.query(catalog.named_tokens)
    found = [
        {
            "id": row["id"], "name": row["name"], "role": row["role"], "created_at": jsonform.iso(row["created_ns"]),
            "revoked_at": jsonform.iso(row["ended_ns"]),
        }
        for row in rows if row["name"] != LOOPBACK_ONLY
    ]  # fmt: skip
    return reply_json(found)


async def create(call: Call) -> Reply:
    """The only time that the token itself is told."""
    asked = call.read(Create)
    role = Role.__members__.get(asked.role.upper(), Role.NOBODY)
    if role is Role.NOBODY:
        raise UsageError(f"{asked.role[:40]!r} is not a role", "ingest, read, operate or admin")
    name = check_name(asked.name)
    token_id, token, hashed = mint()
    now_ns, word = time.time_ns(), role.name.lower()
    write = call.services.store.write(
        lambda c: catalog.insert_token(c, token_id, hashed, word, None, now_ns, name)
    )
    await asyncio.wrap_future(write)
    return reply_json({"id": token_id, "name": name, "role": word, "token": token}, 201)


async def revoke(call: Call) -> Reply:
    """Ends with this answer; requests that are under way are still done."""
    ref, now_ns = call.params["ref"][:64], time.time_ns()
    done = await asyncio.wrap_future(
        call.services.store.write(lambda c: catalog.revoke_token(c, ref, now_ns))
    )
    call.services.auth.tokens.forget()
    if not done:
        raise NotFoundError(f"there is no token {ref!r}", "hw token ls lists them")
    return reply_json({"id": ref})


ROUTES = [
    Route("GET", "/api/tokens", Role.ADMIN, list_tokens, answer=list[contract.Token]),
    Route("POST", "/api/tokens", Role.ADMIN, create, answer=contract.NewToken),
    Route("DELETE", "/api/tokens/{ref}", Role.ADMIN, revoke, answer=contract.Revoked),
]
