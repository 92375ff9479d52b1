"""A monitor's network address: TLS, tokens, exact Hosts; nobody speaks for another (Sec3, Sec10)."""

import http.client
import json
import os
import socket
import ssl
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from headway.home import remote_server
from headway.home.connect import Response
from headway.home.paths import Paths
from headway.model.errors import UsageError
from headway.server.http.auth import Role
from headway.server.http.guard import METHODS
from headway.server.routes import ROUTES
from headway.settings import monitor_settings
from headway.testing.port import reserve
from headway.wire import batch
from headway.wire.batch import Part, TaskKey
from headway.wire.pin import pin_of
from tests import needs
from tests.security.harness import Served, read_all, status
from tests.security.test_routes import PAGE_FILES, PATHS, WORDS, address, bearer

UUID = "00000000-0000-4000-8000-00000000000{}"


@pytest.fixture
def served(home: Path) -> Iterator[Served]:
    needs.tool("openssl", "openssl")
    where = remote_server.Address("127.0.0.1", reserve())
    monitor_settings.save(
        Paths(home), monitor_settings.Listen(where, ["monitor.test", "outside.test:7000"])
    )
    server = Served(home).start()
    yield server
    server.stop()


def listen(served: Served) -> remote_server.Address:
    assert served.process.network is not None
    return served.process.network.listen.address


def tls(
    served: Served,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> Response:
    where = listen(served)
    connection = http.client.HTTPSConnection(
        where.host, where.port, timeout=20, context=remote_server.context()
    )
    try:
        connection.request(method, path, body=body, headers=dict(headers or {}))
        answer = connection.getresponse()
        return Response(
            answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        )
    finally:
        connection.close()


def named(served: Served, name: str, role: str) -> str:
    made = served.unix("POST", "/api/tokens", json={"name": name, "role": role})
    assert made.status == 201
    return str(made.json()["token"])


def told(number: int, state: str = "running") -> dict[str, Any]:
    uuid = UUID.format(number)
    spec = {"command": ["true"], "cwd": "/", "name": "job", "host": "node"}
    attempt = {"number": 1, "state": state, "tasks": [{"name": "worker-0", "node": "node"}]}
    return {
        "uuid": uuid, "id": f"job-0000{number}", "spec": spec, "state": state, "state_since_ns": 1, "submitted_ns": 1,
        "attempts": [attempt],
    }  # fmt: skip


def post(served: Served, path: str, token: str, value: Any) -> Response:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return tls(served, "POST", path, bearer(token), body)


def test_every_route_refuses_the_network_without_a_token_also_the_login(served: Served) -> None:
    for path in PATHS:
        for method in WORDS:
            if method == "GET" and path in PAGE_FILES:
                continue
            answer = tls(served, method, address(path))
            assert answer.status == (401 if method in METHODS else 405), (method, path, answer)
    code = served.unix("POST", "/api/login-code", json={"role": "admin"}).json()["code"]
    assert tls(served, "POST", "/login", body=json.dumps({"code": code}).encode()).status == 401
    cookie = {"Cookie": f"headway={served.browser()}"}  # a browser's login is for loopback
    assert tls(served, "GET", "/api/jobs", cookie).status == 401


def test_every_route_refuses_a_foreign_host_and_origin_on_the_network(served: Served) -> None:
    token, port = named(served, "root", "admin"), listen(served).port
    for path in PATHS:
        for method in sorted(METHODS):
            for host in (
                "evil.example",
                f"evil.example:{port}",
                "127.0.0.1",
                f"monitor.test:{port + 1}",
                "headway",
            ):
                answer = tls(served, method, address(path), bearer(token) | {"Host": host})
                assert answer.status == 400, (method, path, host, answer)
            for origin in ("https://evil.example", "null", f"http://127.0.0.1:{port}"):
                answer = tls(served, method, address(path), bearer(token) | {"Origin": origin})
                assert answer.status == 403, (method, path, origin, answer)
    for host in (f"127.0.0.1:{port}", f"monitor.test:{port}", "outside.test:7000"):
        assert tls(served, "GET", "/api/jobs", bearer(token) | {"Host": host}).status == 200, host


def test_every_route_refuses_a_role_that_is_too_small_on_the_network(served: Served) -> None:
    tokens = {role: named(served, "node", role.name.lower()) for role in Role if role}
    for route in ROUTES:
        for role, token in tokens.items():
            allowed = (
                role >= route.role
                if route.role is not Role.INGEST
                else role in (Role.INGEST, Role.ADMIN)
            )
            if route.role is Role.NOBODY or (allowed and not route.unix_only) or role is Role.ADMIN:
                continue
            assert tls(served, route.method, address(route.path), bearer(token)).status == 403, (
                route.path,
                role,
            )
    for route in ROUTES:
        if route.unix_only:
            assert tls(served, route.method, route.path, bearer(tokens[Role.ADMIN])).status == 403


def test_loopback_tokens_and_hosts_are_as_before(served: Served) -> None:
    token = named(served, "me", "read")
    assert served.tcp("GET", "/api/jobs", bearer(token)).status == 200
    port = listen(served).port
    assert (
        served.tcp("GET", "/api/jobs", bearer(token) | {"Host": f"127.0.0.1:{port}"}).status == 400
    )


def test_plain_http_on_the_tls_port_is_told_what_is_wrong_and_gets_no_data(served: Served) -> None:
    where = listen(served)
    token = named(served, "me", "read")
    plain = (
        b"GET /api/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n" % token.encode()
    )
    with socket.create_connection((where.host, where.port), 10) as sock:
        sock.sendall(plain)
        found = read_all(sock)
    assert status(found) == 400 and b"speaks TLS only" in found and b"hw monitor join" in found
    for data in (b"\x16\x03\x01garbage" * 50, b"\x16", b""):
        with socket.create_connection((where.host, where.port), 10) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            sock.settimeout(15)
            try:
                found = sock.recv(65536)
            except ConnectionResetError:
                found = b""
        assert b"HTTP/" not in found
    assert tls(served, "GET", "/api/jobs", bearer(token)).status == 200


def test_one_address_that_floods_the_port_without_a_handshake_does_not_keep_others_out(
    served: Served,
) -> None:
    where, token = listen(served), named(served, "me", "read")
    silent = [
        socket.create_connection((where.host, where.port), 10, ("127.0.0.9", 0)) for _ in range(400)
    ]
    try:
        assert tls(served, "GET", "/api/jobs", bearer(token)).status == 200
    finally:
        for sock in silent:
            sock.close()


def test_old_tls_is_refused(served: Served) -> None:
    where, old = listen(served), remote_server.context()
    with pytest.warns(DeprecationWarning):
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection((where.host, where.port), 10) as sock, pytest.raises(OSError):
        old.wrap_socket(sock)


def test_a_wrong_pin_is_found_before_anything_is_sent(served: Served) -> None:
    where = listen(served)
    with pytest.raises(remote_server.PinError, match="not the pinned one"):
        remote_server.open_tls(where, "0" * 64, 10)
    assert served.process.network is not None
    with remote_server.open_tls(where, served.process.network.pin, 10) as secure:
        assert pin_of(secure) == monitor_settings.pin(served.paths)
    with pytest.raises(ConnectionError, match="does not speak TLS"):
        remote_server.open_tls(remote_server.Address("127.0.0.1", served.port), None, 10)


def test_the_key_is_for_its_owner_alone_and_names_every_address(served: Served) -> None:
    key, certificate = served.paths.tls / "key.pem", served.paths.tls / "cert.pem"
    assert (
        stat.S_IMODE(key.stat().st_mode) == 0o600
        and stat.S_IMODE(served.paths.tls.stat().st_mode) == 0o700
    )
    names = ssl._ssl._test_decode_cert(str(certificate))["subjectAltName"]  # type: ignore[attr-defined]
    found = {value for _, value in names}
    assert {"localhost", "127.0.0.1", "monitor.test", "outside.test"} <= found
    assert {number for number in monitor_settings.interfaces() if ":" not in number} <= found


def test_without_openssl_there_is_a_clear_word_and_no_listening(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="no openssl"):
        monitor_settings.ensure_certificate(
            Paths(home), monitor_settings.Listen(remote_server.Address("", 10200))
        )


# -- tokens and whose job it is


def test_the_browsers_token_opens_the_loopback_address_only(served: Served) -> None:
    """A-15."""
    token = served.paths.browser_token.read_text()
    assert served.tcp("GET", "/api/jobs", bearer(token)).status == 200
    assert tls(served, "GET", "/api/jobs", bearer(token)).status == 401


def test_a_token_is_told_once_kept_as_a_hash_and_ends_when_revoked(served: Served) -> None:
    token = named(served, "me", "read")
    listed = served.unix("GET", "/api/tokens").json()
    assert [(row["name"], row["role"], row["revoked_at"]) for row in listed] == [
        ("me", "read", None)
    ]
    assert token.partition(".")[2].encode() not in served.paths.db.read_bytes() + _wal(served)
    assert tls(served, "GET", "/api/jobs", bearer(token)).status == 200
    assert served.unix("DELETE", f"/api/tokens/{listed[0]['id']}").status == 200
    answer = tls(served, "GET", "/api/jobs", bearer(token))
    assert answer.status == 401 and b"revoked" in answer.body
    assert served.unix("DELETE", "/api/tokens/nothing").status == 404
    assert served.unix("POST", "/api/tokens", json={"name": "../x"}).status == 400
    assert served.unix("POST", "/api/tokens", json={"name": "x", "role": "nobody"}).status == 400


def _wal(served: Served) -> bytes:
    path = served.paths.db.with_name(served.paths.db.name + "-wal")
    return path.read_bytes() if path.exists() else b""


def test_a_machine_speaks_only_of_its_own_jobs(served: Served) -> None:
    one, other = named(served, "one", "ingest"), named(served, "other", "ingest")
    assert post(served, "/agent/guests", one, told(1)).status == 200
    assert post(served, "/agent/guests", other, told(1)).status == 409
    ours, _ = served.job(5)
    assert post(served, "/agent/guests", one, told(5)).status == 409, "this machine's own job"
    assert ours.spec.guest_of is None
    key = TaskKey(UUID.format(1), 1, "worker-0")
    data = batch.encode(key, [Part("stdout-0", "raw", 0, b"hello\n")], 1)
    assert post(served, "/agent/ingest", other, data).status == 403
    assert (
        post(
            served, "/agent/ingest", other, batch.encode(TaskKey(UUID.format(7), 1, "w-0"), [], 1)
        ).status
        == 404
    )
    assert post(served, "/agent/ingest", one, data).json()["acks"] == {"stdout-0": 6}
    assert post(served, "/agent/ingest", one, data).json()["acks"] == {"stdout-0": 6}, (
        "twice is once (P4)"
    )
    asked = post(
        served, "/agent/guests/poll", other, {"jobs": [UUID.format(1)], "wait_s": 0}
    ).json()
    assert asked == {"commands": [], "again": [UUID.format(1)]}, (
        "nobody hears the commands of another machine"
    )
    line = b"loss value=1"
    other_job = f"/write?db={UUID.format(1)}"
    assert post(served, other_job, other, line).status == 400, "nor by line protocol"
    assert post(served, f"/write?db={ours.uuid}", one, line).status == 400, "nor of this machine's"
    assert b"belongs to another machine" in post(served, other_job, other, line).body
    assert post(served, other_job, one, line).status == 204
    task_token = served.token("ingest", key)
    assert post(served, "/agent/guests", task_token, told(1)).status == 403


def test_what_a_machine_tells_is_checked_and_an_end_stays_an_end(served: Served) -> None:
    token = named(served, "one", "ingest")
    for change in (
        {"uuid": "../../etc"},
        {"state": "fine"},
        {"state_since_ns": 2**63},
        {"submitted_ns": -(2**63)},
        {"exit_code": 2**40},
        {"spec": {}},
        {"attempts": [{"number": 0, "state": "running"}]},
    ):
        answer = post(served, "/agent/guests", token, told(1) | change)
        assert answer.status == 400, (change, answer)
    bad = told(2)
    bad["attempts"][0]["tasks"] = [{"name": "../../x"}]
    assert post(served, "/agent/guests", token, bad).status == 400
    assert post(served, "/agent/guests", token, told(1) | {"later": 1}).status == 200, (
        "a newer machine may say more"
    )
    assert post(served, "/agent/guests", token, told(1, "succeeded")).status == 200
    assert post(served, "/agent/guests", token, told(1, "running")).status == 200
    assert served.unix("GET", f"/api/jobs/{UUID.format(1)}").json()["state"] == "succeeded"


def test_the_file_of_known_monitors_is_refused_when_others_could_read_it(home: Path) -> None:
    where = remote_server.Address("head", 10200)
    path = remote_server.remember(home, where, "a" * 64, "ingest", "id.secret")
    remote_server.remember(home, where, "a" * 64, "view", "id2.secret2")
    assert remote_server.known(home)["head:10200"].tokens == {
        "ingest": "id.secret",
        "view": "id2.secret2",
    }
    assert "secret" not in repr(remote_server.known(home)) + repr(
        remote_server.way_to(home, where, "ingest")
    )
    remote_server.remember(home, where, "b" * 64, "ingest", "id3.secret3")
    assert remote_server.known(home)["head:10200"].tokens == {"ingest": "id3.secret3"}, (
        "another certificate, other tokens"
    )
    os.chmod(path, 0o644)
    with pytest.raises(UsageError, match="open to others"):
        remote_server.known(home)
