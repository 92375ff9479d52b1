"""The network address for agents of other machines: nothing but a task's own token counts, and only
for its task.
"""

import asyncio
import http.client
import json
import select
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from headway.agent.transport.http import Answer
from headway.agent.transport.tls import TlsChannel
from headway.home import remote_server
from headway.home.connect import HOST, Response
from headway.model.limits import CONNECT_S
from headway.server.http.guard import METHODS
from headway.server.routes import ROUTES
from headway.testing.port import reserve
from headway.wire import batch
from headway.wire.batch import Part, TaskKey
from tests import needs
from tests.security.harness import Served
from tests.security.test_routes import PATHS, address, bearer
from tests.waiting import wait_until


@pytest.fixture
def served(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    needs.tool("openssl", "openssl")
    monkeypatch.setenv("HEADWAY_AGENT_ADDRESS", f"127.0.0.1:{reserve()}")
    server = Served(home).start()
    yield server
    leave(server)


CHANNELS: list[TlsChannel] = []


def leave(served: Served) -> None:
    while CHANNELS:
        CHANNELS.pop().close()
    served.stop()


def opened(served: Served) -> dict[str, Any]:
    """Open the door, as the first job on other machines does."""
    assert served._loop is not None
    found = asyncio.run_coroutine_threadsafe(served.control.reach(), served._loop).result(20)
    assert found is not None
    return dict(found)


def ask(
    where: dict[str, Any],
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> Response:
    host, _, port = where["addresses"][0].rpartition(":")
    connection = http.client.HTTPSConnection(
        host, int(port), timeout=20, context=remote_server.context()
    )
    try:
        connection.request(method, path, body=body, headers={"Host": HOST, **(headers or {})})
        answer = connection.getresponse()
        return Response(
            answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        )
    finally:
        connection.close()


def post(channel: TlsChannel, path: str, body: bytes, timeout_s: float = 20.0) -> Answer:
    """Drive a channel as the shipper's loop does."""
    CHANNELS.append(channel)
    answer = channel.start(path, [body], time.monotonic(), timeout_s)
    while answer is None:
        poll = select.poll()
        poll.register(
            channel.fileno(), select.POLLIN | (select.POLLOUT if channel.wants_write else 0)
        )
        poll.poll(200)
        answer = channel.step(time.monotonic())
    return answer


def data(key: TaskKey, text: bytes = b"hello\n", offset: int = 0) -> bytes:
    return batch.encode(key, [Part("stdout-0", "raw", offset, text)], 1)


def test_no_port_is_open_until_a_job_needs_it(served: Served) -> None:
    assert served.unix("GET", "/api/server").json()["agents"] is None
    where = opened(served)
    assert opened(served) == where
    assert served.unix("GET", "/api/server").json()["agents"]["addresses"] == where["addresses"]


def test_a_task_sends_its_own_data_and_hears_its_own_commands(served: Served) -> None:
    where, (_, key) = opened(served), served.job()
    token = served.token("ingest", key)
    channel = TlsChannel(where, token)
    answer = post(channel, "/agent/ingest", data(key))
    assert (answer.status, json.loads(answer.body)["acks"]) == (200, {"stdout-0": 6})
    large = b"x" * 3_000_000
    # on the same connection, in many pieces
    answer = post(channel, "/agent/ingest", data(key, large, 6))
    assert json.loads(answer.body)["acks"] == {"stdout-0": 6 + len(large)}
    asked = {"task": {"uuid": key.uuid, "attempt": 1, "task": key.task}, "wait_s": 0}
    assert post(channel, "/agent/poll", json.dumps(asked).encode()).status == 200
    channel.close()


def test_a_tasks_token_opens_nothing_but_the_two_routes_of_its_task(served: Served) -> None:
    where, (_, key), (_, other) = opened(served), served.job(), served.job(2)
    login = bearer(served.token("ingest", key))
    for route in ROUTES:
        for method in METHODS:
            answer = ask(
                where, method, address(route.path), login, b"{}" if method == "POST" else None
            )
            if (method, route.path) in (("POST", "/agent/ingest"), ("POST", "/agent/poll")):
                # let in, and told that this is no such request
                assert answer.status == 400, route.path
            else:
                assert answer.status in (403, 404, 405), (method, route.path, answer)
    assert ask(where, "POST", "/agent/ingest", login, data(other)).status == 403
    asked = {"task": {"uuid": other.uuid, "attempt": 1, "task": other.task}, "wait_s": 0}
    assert ask(where, "POST", "/agent/poll", login, json.dumps(asked).encode()).status == 403
    assert ask(where, "POST", "/agent/guests/poll", login, b'{"jobs": []}').status == 403
    assert ask(where, "POST", "/agent/ingest", login, data(key)).status == 200


@pytest.mark.parametrize("role", ["read", "operate", "admin", "ingest"])
def test_no_other_token_counts_there_whatever_it_may_do_elsewhere(
    served: Served, role: str
) -> None:
    where = opened(served)
    login = bearer(served.token(role))
    for path in PATHS[:6]:
        assert ask(where, "GET", path, login).status == 401
    assert ask(where, "POST", "/agent/poll", login, b"{}").status in (401, 429)
    cookie = {"Cookie": f"headway={served.browser()}"}
    assert ask(where, "GET", "/api/jobs", cookie).status in (401, 403, 429)
    assert ask(where, "GET", "/api/jobs").status in (401, 429)
    assert ask(where, "POST", "/login", body=b'{"code": "x"}').status in (401, 429)


def test_a_token_that_has_ended_is_refused_and_another_host_is_not_this_server(
    served: Served,
) -> None:
    from headway.store import catalog

    where, (_, key) = opened(served), served.job()
    login = bearer(served.token("ingest", key))
    assert (
        ask(where, "POST", "/agent/ingest", {**login, "Host": "evil.example"}, data(key)).status
        == 400
    )
    served.write(lambda c: catalog.end_tokens(c, key, 1))
    assert ask(where, "POST", "/agent/ingest", login, data(key)).status == 401


def test_an_agent_sends_nothing_to_a_server_without_the_pinned_certificate(served: Served) -> None:
    where, (_, key) = opened(served), served.job()
    assert served.process.app is not None
    before = served.process.app.requests
    channel = TlsChannel({**where, "pin": "0" * 64}, served.token("ingest", key))
    answer = post(channel, "/agent/ingest", data(key))
    assert answer.status is None
    assert (
        "its certificate is not the one that this task was given; nothing was sent to it"
        in answer.reason
    )
    assert served.process.app.requests == before


def test_plain_http_is_told_what_this_address_is(served: Served) -> None:
    host, _, port = opened(served)["addresses"][0].rpartition(":")
    with socket.create_connection((host, int(port)), 20) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert plain.recv(100).startswith(b"HTTP/1.1 400")


def test_the_next_address_is_tried_where_one_does_not_answer(served: Served) -> None:
    where, (_, key) = opened(served), served.job()
    closed = f"127.0.0.1:{reserve()}"
    channel = TlsChannel(
        {**where, "addresses": [closed, "not a number:1", *where["addresses"]]}, "x.y"
    )
    channel.token = served.token("ingest", key)
    assert post(channel, "/agent/ingest", data(key)).status == 200


def test_an_address_that_never_answers_costs_a_few_seconds_and_no_more() -> None:
    # it takes the connection and says nothing
    with socket.create_server(("127.0.0.1", 0)) as silent:
        channel = TlsChannel(
            {"addresses": [f"127.0.0.1:{silent.getsockname()[1]}"], "pin": "0" * 64}, "x.y"
        )
        assert channel.start("/agent/poll", [b"{}"], 100.0, 30.0) is None
        wait_until(
            lambda: channel._stage == "handshake" or channel.step(100.1),
            10,
            "the handshake's beginning",
        )
        assert channel.step(100.0 + CONNECT_S - 0.1) is None
        answer = channel.step(100.0 + CONNECT_S)
        assert answer is not None
        assert "does not answer" in answer.reason
        channel.close()


def test_a_monitor_has_one_address_for_agents_and_everybody(home: Path) -> None:
    from headway.home.paths import Paths
    from headway.settings import monitor_settings

    needs.tool("openssl", "openssl")
    monitor_settings.save(
        Paths(home), monitor_settings.Listen(remote_server.Address("127.0.0.1", reserve()), [])
    )
    served = Served(home).start()
    try:
        where, (_, key) = opened(served), served.job()
        assert served.process.network is not None
        assert where["addresses"] == [str(served.process.network.listen.address)]
        assert (
            post(TlsChannel(where, served.token("ingest", key)), "/agent/ingest", data(key)).status
            == 200
        )
    finally:
        leave(served)
