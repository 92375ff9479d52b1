"""Tokens, cookies and peers: who is let in, as whom, and for how long (Sec3, B29)."""

import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from headway.home.connect import Response
from headway.model.limits import WRONG_TOKENS_MAX
from headway.server.http import transport
from headway.store import catalog
from headway.wire import batch
from headway.wire.batch import Part, TaskKey
from tests.security.harness import Served, status


def ask(served: Served, token: str, path: str = "/api/server") -> Response:
    return served.tcp("GET", path, {"Authorization": f"Bearer {token}"})


# -- peers


def test_a_peer_of_our_uid_on_the_unix_socket_is_admin(served: Served) -> None:
    assert served.unix("GET", "/api/server").status == 200
    assert served.unix("POST", "/api/login-code", json={}).status == 200


def test_a_peer_of_our_uid_that_shows_a_token_is_what_the_token_says(served: Served) -> None:
    assert served.unix("GET", "/api/server", token=served.token("read")).status == 200
    assert served.unix("POST", "/api/jobs", token=served.token("read"), json={}).status == 403
    assert served.unix("GET", "/api/server", token="x." + "y" * 43).status == 401
    assert served.unix("GET", "/api/server", token=" ").status == 401


def test_a_peer_of_another_uid_is_refused_whatever_it_shows(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = transport.peer_uid
    monkeypatch.setattr(transport, "peer_uid", lambda sock: (real(sock) or 0) + 1)
    served = Served(home).start()
    try:
        assert served.unix("GET", "/api/server").status == 403
        assert served.unix("GET", "/api/server", token=served.token("admin")).status == 403
        assert served.unix("POST", "/login", json={"code": "x"}).status == 403
    finally:
        served.stop()


def test_a_peer_whose_uid_cannot_be_told_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "peer_uid", lambda sock: None)
    served = Served(home).start()
    try:
        assert served.unix("GET", "/api/server").status == 403
    finally:
        served.stop()


# -- tokens


def wrong_tokens(right: str) -> list[str]:
    token_id, _, secret = right.partition(".")
    return [
        "", " ", ".", "..", token_id, f"{token_id}.", f".{secret}", f"{token_id}.{'A' * len(secret)}", f" {right}",
        f"{token_id}.{secret}x", f"{token_id}.{secret[:-1]}", f"{token_id}.{secret}.{secret}", right.upper(),
        f"{right},", f"{token_id}%2e{secret}", f"x{token_id}.{secret}", "a" * 30_000, f"{token_id}.{'b' * 30_000}",
        "é.è", "'--.x",
    ]  # fmt: skip


def test_a_wrong_token_is_401_and_is_never_logged(
    home: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr("headway.server.http.auth.WRONG_TOKENS_MAX", 10_000)
    served = Served(home).start()
    try:
        right = served.token("read")
        assert ask(served, right).status == 200
        head = b"GET / HTTP/1.1\r\nHost: localhost:%d\r\n" % served.port
        for token in wrong_tokens(right):
            line = f"Authorization: Bearer {token}\r\n\r\n".encode()
            assert (
                status(served.raw(b"GET / HTTP/1.1\r\nHost: localhost:%d\r\n" % served.port + line))
                == 401
            ), token[:80]
        huge = b"Authorization: Bearer " + b"a" * 1_000_000 + b"\r\n"
        assert status(served.raw(head + huge + b"\r\n")) == 431
    finally:
        served.stop()
    secret = right.partition(".")[2]
    assert (
        secret not in caplog.text and "AAAAAAA" not in caplog.text and "bbbbbbb" not in caplog.text
    )


def test_a_token_is_read_from_the_header_only(served: Served) -> None:
    token = served.token("admin")
    for path in (
        f"/api/server?token={token}",
        f"/api/server?access_token={token}",
        f"/api/server?authorization={token}",
    ):
        assert served.tcp("GET", path).status == 401
    assert served.tcp("GET", "/api/server", {"Cookie": f"headway={token}"}).status == 401
    assert served.tcp("GET", "/api/server", {"X-Authorization": f"Bearer {token}"}).status == 401
    for scheme in ("Basic", "Token", ""):
        assert (
            served.tcp("GET", "/api/server", {"Authorization": f"{scheme} {token}"}).status == 401
        )


def test_a_token_ends_when_its_job_does(served: Served) -> None:
    job, key = served.job()
    token = served.token("ingest", key)
    poll = {"task": {"uuid": key.uuid, "attempt": 1, "task": "worker-0"}, "wait_s": 0}
    assert served.unix("POST", "/agent/poll", token=token, json=poll).status == 200

    def end(c: Any) -> None:
        catalog.end_tokens(c, key, time.time_ns())
        catalog.add_event(c, job.pk, "note", {}, time.time_ns())

    served.write(end)
    assert served.unix("POST", "/agent/poll", token=token, json=poll).status == 401


def test_a_role_that_we_do_not_know_lets_nobody_in(served: Served) -> None:
    for role in ("", "root", "nobody ", "ADMIN2"):
        assert ask(served, served.token(role)).status == 401, role
    assert ask(served, served.token("nobody")).status == 403


def test_an_agents_token_is_for_its_own_task(served: Served) -> None:
    _, key = served.job(1)
    _, other = served.job(2)
    token = served.token("ingest", key)
    for foreign in (other, TaskKey(key.uuid, 2, "worker-0"), TaskKey(key.uuid, 1, "worker-1")):
        body = batch.encode(foreign, [Part("stdout-0", "raw", 0, b"hello\n")], 1)
        assert served.unix("POST", "/agent/ingest", token=token, body=body).status == 403
        named = {"uuid": foreign.uuid, "attempt": foreign.attempt, "task": foreign.task}
        assert (
            served.unix(
                "POST", "/agent/poll", token=token, json={"task": named, "wait_s": 0}
            ).status
            == 403
        )
    assert served.unix("GET", "/api/jobs", token=token).status == 403


def test_wrong_tokens_are_rate_limited_on_loopback_and_right_ones_still_pass(
    served: Served,
) -> None:
    right = served.token("read")
    found = [ask(served, f"{'a' * 16}.{'b' * 43}").status for _ in range(WRONG_TOKENS_MAX + 5)]
    assert found == [401] * WRONG_TOKENS_MAX + [429] * 5
    assert ask(served, right).status == 200
    assert served.tcp("GET", "/").status == 401  # no token is not a guess
    assert served.unix("GET", "/", token="a." + "b" * 43).status == 401


# -- browsers


def log_in(served: Served, code: Any, headers: dict[str, str] | None = None) -> Response:
    return served.tcp("POST", "/login", headers, json.dumps({"code": code}).encode())


def test_a_code_is_exchanged_once_for_a_cookie_that_scripts_cannot_read(served: Served) -> None:
    given = served.unix("POST", "/api/login-code", json={}).json()
    assert given["url"] == f"http://127.0.0.1:{served.port}"
    answer = log_in(served, given["code"])
    assert answer.status == 200
    cookie = answer.headers["set-cookie"]
    assert (
        cookie.startswith("headway=")
        and "HttpOnly" in cookie
        and "SameSite=Strict" in cookie
        and "Path=/" in cookie
    )
    assert given["code"] not in cookie
    pair = {"Cookie": "other=1; " + cookie.partition(";")[0]}
    assert served.tcp("GET", "/api/jobs", pair).status == 200
    assert log_in(served, given["code"]).status == 401


def test_a_browser_gets_the_role_that_was_asked_for_and_not_more(served: Served) -> None:
    for role, may_submit, may_stop in (("read", False, False), ("operate", True, False)):
        code = served.unix("POST", "/api/login-code", json={"role": role}).json()["code"]
        cookie = log_in(served, code).headers["set-cookie"].partition(";")[0]
        same = {"Cookie": cookie, "Sec-Fetch-Site": "same-origin"}
        assert (served.tcp("POST", "/api/jobs", same, b"{}").status == 400) is may_submit
        assert (served.tcp("POST", "/api/server/stop", same, b"{}").status == 200) is may_stop
    for role in ("ingest", "nobody", "root", ""):
        assert served.unix("POST", "/api/login-code", json={"role": role}).status == 400


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b"code", b'{"code":1}', b'{"code":""}', b'{"code":"\\ud800"}', b"\xff"],
)
def test_a_login_without_a_code_of_ours_is_401(served: Served, body: bytes) -> None:
    assert served.tcp("POST", "/login", body=body).status == 401


def test_wrong_codes_are_rate_limited(served: Served) -> None:
    found = {log_in(served, "x" * 43).status for _ in range(WRONG_TOKENS_MAX)}
    assert found == {401}
    assert log_in(served, "x" * 43).status == 429


def test_a_login_from_another_site_is_refused(served: Served) -> None:
    code = served.unix("POST", "/api/login-code", json={}).json()["code"]
    assert log_in(served, code, {"Origin": "https://evil.example"}).status == 403
    assert log_in(served, code, {"Sec-Fetch-Site": "cross-site"}).status == 403
    assert log_in(served, code, {"Origin": f"http://127.0.0.1:{served.port}"}).status == 200


def test_an_invented_cookie_lets_nobody_in(served: Served) -> None:
    for cookie in (
        "headway=",
        "headway=x",
        "headway",
        "HEADWAY=x",
        ";;;=",
        "headway=x; headway=y",
        "x" * 10_000,
    ):
        assert served.tcp("GET", "/", {"Cookie": cookie}).status == 401, cookie[:50]
