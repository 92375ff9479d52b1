"""Routes, threads, room for bodies, and what a mistake of ours looks like from outside."""

import asyncio
import json
import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.home.paths import Paths
from headway.model.errors import UnreachableError
from headway.server.app import App, Held, Readers, Room, Route, Services, Table
from headway.server.http.auth import Auth, Caller, Role
from headway.server.http.guard import CALLER
from headway.server.http.request import Call, Gone, Refusal, Reply, reply_json
from headway.server.live import Live


async def hello(call: Call) -> Reply:
    return reply_json({"params": call.params, "body": call.body.decode()})


async def broken(call: Call) -> Reply:
    raise ZeroDivisionError("the secret is sesame")


async def busy(call: Call) -> Reply:
    raise UnreachableError("later", "wait")


ROUTES = [
    Route("GET", "/things/{ref}", Role.READ, hello),
    Route("POST", "/things/{ref}", Role.OPERATE, hello, body_bytes_max=10),
    Route("GET", "/broken", Role.READ, broken),
    Route("GET", "/busy", Role.READ, busy),
]


STORE = SimpleNamespace(trouble="", notices=SimpleNamespace(words=""))


def ask(
    method: str,
    path: str,
    *,
    role: Role = Role.ADMIN,
    messages: list[Any] | None = None,
    store: Any = STORE,
    heads: list[Any] | None = None,
) -> tuple[int, Any, bytes]:
    """Status, JSON and the header `connection` of one request to an application of its own."""

    async def run() -> list[Any]:
        async def lookup(token_id: str) -> None: ...

        services = Services(
            store, Paths(Path("/nowhere")), None, None, Auth.over(lookup, 0), Live(), None, {}, asyncio.Event()  # type: ignore[arg-type]
        )  # fmt: skip
        waiting = list(messages or [{"type": "http.request", "body": b"", "more_body": False}])
        sent: list[Any] = []

        async def receive() -> Any:
            return waiting.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [],
            CALLER: Caller(role),
        }
        await App(Table(ROUTES), services)(scope, receive, send)
        assert services.room.used_bytes == 0
        services.close()
        return sent

    sent = asyncio.run(run())
    if heads is not None:
        heads += sent[0]["headers"]
    if not sent:
        return 0, None, b""
    body = b"".join(bytes(m["body"]) for m in sent[1:])
    return sent[0]["status"], json.loads(body), dict(sent[0]["headers"]).get(b"connection", b"")


def test_a_route_is_found_by_method_and_shape_of_its_path() -> None:
    assert ask("GET", "/things/a-b.c")[:2] == (200, {"params": {"ref": "a-b.c"}, "body": ""})
    assert ask("GET", "/things/a/b")[0] == 404
    assert ask("GET", "/things/")[0] == 404
    assert ask("GET", "/things")[0] == 404
    assert ask("DELETE", "/things/a")[0] == 405
    assert ask("POST", "/broken")[0] == 405


def test_the_role_is_checked_before_the_body_is_read() -> None:
    status, found, connection = ask("POST", "/things/a", role=Role.READ)
    assert (status, found["error"]["code"], connection) == (403, "forbidden", b"close")


def test_a_body_in_pieces_is_joined_and_counted() -> None:
    pieces = [
        {"type": "http.request", "body": b"hel", "more_body": True},
        {"type": "http.request", "body": b"lo"},
    ]
    assert ask("POST", "/things/a", messages=pieces)[1]["body"] == "hello"
    large = [{"type": "http.request", "body": b"x" * 6, "more_body": True}] * 4 + [
        {"type": "http.request"}
    ]
    assert ask("POST", "/things/a", messages=large)[0] == 413


def test_a_caller_who_hangs_up_gets_no_answer() -> None:
    assert ask("POST", "/things/a", messages=[{"type": "http.disconnect"}])[0] == 0


def test_a_mistake_of_ours_is_an_id_for_the_caller_and_a_trace_for_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        status, found, _ = ask("GET", "/broken")
    assert status == 500 and found["error"]["code"] == "internal"
    assert "sesame" not in json.dumps(found) and "ZeroDivision" not in json.dumps(found)
    error_id = found["error"]["message"].rpartition(" ")[2].rstrip(")")
    assert error_id in caplog.text and "sesame" in caplog.text


def test_an_error_of_ours_keeps_its_words() -> None:
    status, found, _ = ask("GET", "/busy")
    assert (status, found["error"]["message"], found["error"]["hint"]) == (503, "later", "wait")


def test_no_more_questions_wait_than_may() -> None:
    async def run() -> None:
        readers, gate = Readers(threads=1, waiting_max=2), threading.Event()
        held = [asyncio.create_task(readers.run(gate.wait, 20)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(UnreachableError):
            await readers.run(lambda: None)
        gate.set()
        await asyncio.gather(*held)
        assert await readers.run(lambda: 5) == 5
        readers.close()

    asyncio.run(run())


def test_bodies_of_all_callers_together_have_a_limit() -> None:
    async def run() -> None:
        room = Room(bytes_max=10)
        first, second = Held(room), Held(room)

        async def six() -> Any:
            return {"type": "http.request", "body": b"x" * 6, "more_body": False}

        assert await first.read(six, 100) == b"x" * 6
        with pytest.raises(UnreachableError):
            await second.read(six, 100)
        second.release()
        first.release()
        assert room.used_bytes == 0
        assert await Held(room).read(six, 100)

    asyncio.run(run())


def test_a_body_that_is_too_large_or_cut_off_is_refused() -> None:
    async def run() -> None:
        async def gone() -> Any:
            return {"type": "http.disconnect"}

        async def large() -> Any:
            return {"type": "http.request", "body": b"x" * 11, "more_body": False}

        with pytest.raises(Gone):
            await Held(Room()).read(gone, 10)
        with pytest.raises(Refusal) as refused:
            await Held(Room()).read(large, 10)
        assert refused.value.status == 413

    asyncio.run(run())


def test_every_answer_says_when_nothing_can_be_stored() -> None:
    for store, told in (
        (STORE, []),
        (SimpleNamespace(trouble="full\nnow \u2603", notices=STORE.notices), [b"full now ?"]),
    ):
        heads: list[Any] = []
        assert ask("GET", "/things/a", store=store, heads=heads)[0] == 200
        assert [value for name, value in heads if name == b"x-headway-trouble"] == told
