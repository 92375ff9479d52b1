"""`/api/server` and `/login`: the server itself, and how a browser gets in."""

import msgspec

from headway.model.errors import HeadwayError
from headway.model.limits import LOGIN_CODE_S, REQUEST_BYTES_ANONYMOUS_MAX, SESSION_S
from headway.server import contract
from headway.server.api import page
from headway.server.app import Route
from headway.server.http.auth import COOKIE, Role
from headway.server.http.request import Call, Refusal, Reply, reply_json
from headway.store import jsonform, query


class LoginCode(msgspec.Struct, forbid_unknown_fields=True):
    role: str = "operate"


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """An empty object."""


class Login(msgspec.Struct, forbid_unknown_fields=True):
    code: str


async def show(call: Call) -> Reply:
    about = dict(call.services.about)
    about["started_at"] = jsonform.iso(about.pop("started_ns"))
    jobs = await call.services.query(query.count_jobs)
    restored = call.services.store.restored
    told = {
        "ways": call.services.ways.count(), "way_troubles": call.services.ways.troubles(),
        "role": call.caller.role.name.lower(), "loop_lag": call.services.loop_lag.about(),
        "restored": None if restored is None else str(restored), "page": page.exists(),
        "notices": call.services.store.notices.all(),
        "clock_steps": list(call.services.loop_lag.clock.steps),
    }  # fmt: skip
    return reply_json(about | told | {"jobs": jobs, "monitors": call.services.outbox.status()})


async def describe(call: Call) -> Reply:
    """The OpenAPI document: every route, what it takes and what it answers."""
    # here, because the table of routes needs this file first
    from headway.server import openapi, routes

    return reply_json(openapi.document(routes.ROUTES))


async def acknowledge(call: Call) -> Reply:
    """A person has seen what was damaged: it is told no more."""
    call.read(Nothing)
    return reply_json({"acknowledged": call.services.store.notices.acknowledge()})


async def stop(call: Call) -> Reply:
    """The answer still goes out: the server ends once what it has begun is done. Jobs go on."""
    call.services.stopping.set()
    return reply_json({"pid": call.services.about["pid"]})


async def login_code(call: Call) -> Reply:
    """A code that a browser can exchange for a cookie, once and soon. It travels in a private file,
    not in an argv.
    """
    wanted = call.read(LoginCode).role.upper()
    role = Role.__members__.get(wanted, Role.NOBODY)
    if role not in (Role.READ, Role.OPERATE, Role.ADMIN) or not call.caller.may(role):
        raise Refusal(400, "usage", "a browser's role is read, operate or admin")
    code = call.services.auth.codes.give(role)
    return reply_json({"code": code, "url": call.services.about["url"], "expires_s": LOGIN_CODE_S})


async def login(call: Call) -> Reply:
    """Whatever does not hold a code of ours is one and the same 401."""
    auth = call.services.auth
    try:
        role = auth.codes.take(call.read(Login).code)
    except (HeadwayError, UnicodeEncodeError):
        role = Role.NOBODY
    if role is Role.NOBODY:
        if not call.caller.unix and auth.failures.too_many():
            raise Refusal(429, "slow_down", "too many wrong codes")
        raise Refusal(
            401, "login", "this code is not valid, or no longer", "ask `hw` for a new one"
        )
    cookie = f"{COOKIE}={auth.sessions.give(role)}; Path=/; HttpOnly; SameSite=Strict; Max-Age={int(SESSION_S)}"
    reply = reply_json({"role": role.name.lower()})
    reply.headers.append((b"set-cookie", cookie.encode()))
    return reply


ROUTES = [
    Route("GET", "/api/openapi.json", Role.READ, describe, answer=dict[str, contract.Json]),
    Route("GET", "/api/server", Role.READ, show, answer=contract.Server),
    Route("POST", "/api/server/stop", Role.ADMIN, stop, answer=contract.Stopped),
    Route("POST", "/api/server/acknowledge", Role.ADMIN, acknowledge, answer=contract.Acknowledged),
    Route(
        "POST", "/api/login-code", Role.ADMIN, login_code, unix_only=True, answer=contract.LoginCode
    ),
    Route(
        "POST",
        "/login",
        Role.NOBODY,
        login,
        body_bytes_max=REQUEST_BYTES_ANONYMOUS_MAX,
        answer=contract.Empty,
    ),
]
