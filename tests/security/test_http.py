"""Malformed, oversized and slow requests over raw sockets (B28, F42): refused within limits, and
others are served.
"""

import json
import socket
import threading
import time
from typing import Any

import pytest

from headway.home.connect import Client
from headway.model.limits import (
    CONNECTIONS_TCP_MAX,
    HEAD_BYTES_MAX,
    HEADERS_MAX,
    INGEST_BYTES_MAX,
    REQUEST_BYTES_ANONYMOUS_MAX,
    REQUEST_BYTES_MAX,
)
from headway.server.http import transport
from headway.server.http.guard import hosts_for, parse_host
from tests.security.harness import Served, read_all, status
from tests.waiting import wait_until

UNIX = b"Host: headway\r\n"


def get(more: bytes = b"", path: bytes = b"/api/server") -> bytes:
    return b"GET " + path + b" HTTP/1.1\r\n" + more + b"\r\n"


def post(more: bytes, body: bytes = b"", path: bytes = b"/api/jobs") -> bytes:
    return b"POST " + path + b" HTTP/1.1\r\n" + UNIX + more + b"\r\n" + body


# -- Host


@pytest.mark.parametrize(
    "host",
    [
        b"", b"Host:\r\n", b"Host: headway\r\nHost: headway\r\n", b"Host: headway.\r\n", b"Host: headway:80\r\n",
        b"Host: localhost\r\n", b"Host: headway@evil\r\n", b"Host: headway/\r\n", b"Host: head way\r\n",
        b"Host: [::1\r\n", b"Host: headway, evil\r\n", b"Host: \xff\r\n",
    ],
)  # fmt: skip
def test_a_request_needs_exactly_our_host_on_the_unix_socket(served: Served, host: bytes) -> None:
    assert status(served.raw(get(host), unix=True)) == 400


def test_loopback_knows_three_names_with_their_port_and_no_other(served: Served) -> None:
    port, token = served.port, served.token("read")
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", f"LOCALHOST:{port}"):
        answer = served.raw(get(f"Host: {host}\r\nAuthorization: Bearer {token}\r\n".encode()))
        assert status(answer) == 200, host
    for host in (
        f"localhost.:{port}", "localhost", "[::1]", f"::1:{port}", f"0.0.0.0:{port}", f"127.1:{port}",
        f"127.0.0.1:{port}:{port}", f"127.0.0.1:0{port}", f"headway:{port}", "headway", f"[::ffff:127.0.0.1]:{port}",
    ):  # fmt: skip
        answer = served.raw(get(f"Host: {host}\r\nAuthorization: Bearer {token}\r\n".encode()))
        assert status(answer) == 400, host


def test_hosts_are_parsed_whole() -> None:
    assert parse_host("[::1]:80") == "[::1]:80"
    assert parse_host("LocalHost:1") == "localhost:1"
    for bad in (
        "",
        ".",
        "a.",
        "a b",
        "a:b",
        "[::1",
        "a:123456",
        "-",
        "a" * 300,
        "a\n",
        "a:1\n",
        "[::g]",
    ):
        assert parse_host(bad) is None, bad
    assert "localhost" in hosts_for(80) and "localhost" not in hosts_for(8080)


# -- form


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET http://evil.example/api/server HTTP/1.1\r\n" + UNIX + b"\r\n",
        b"OPTIONS * HTTP/1.1\r\n" + UNIX + b"\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\n" + UNIX + b"\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\n" + UNIX + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GARBAGE\r\n\r\n",
        get(UNIX + b" folded: x\r\n"),
        get(UNIX + b"X: a\x00b\r\n"),
        get(UNIX + b"Authorization: Bearer a.b\r\nAuthorization: Bearer c.d\r\n"),
        post(b"Content-Length: 3\r\nContent-Length: 5\r\n", b"{}\n"),
        post(b"Content-Length: -1\r\n"),
        post(b"Content-Length: 1e3\r\n"),
        post(b"Content-Length: 99999999999999999999999\r\n"),
        post(b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", b"{}"),
        post(b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"),
        post(b"Transfer-Encoding: chunked\r\n", b"zz\r\n"),
        post(
            b"Transfer-Encoding: chunked\r\n", b"2\r\n{}\r\n0\r\nAuthorization: Bearer a.b\r\n\r\n"
        ),
        get(UNIX + b"Content-Length: 2\r\n") + b"{}",
        get(UNIX + b"Upgrade: h2c\r\nConnection: Upgrade\r\n"),
    ],
)
def test_a_malformed_request_is_answered_400_and_closed(
    served: Served, request_bytes: bytes
) -> None:
    answer = served.raw(request_bytes, unix=True)
    assert status(answer) in (400, 405), answer[:200]
    assert b"connection: close" in answer
    assert served.unix("GET", "/api/server").status == 200


def test_a_compressed_body_is_refused(served: Served) -> None:
    for coding in (b"gzip", b"deflate", b"br", b"zstd"):
        answer = served.raw(
            post(b"Content-Encoding: " + coding + b"\r\nContent-Length: 2\r\n", b"{}"), unix=True
        )
        assert status(answer) == 415


def test_ranges_are_ignored(served: Served) -> None:
    ranges = b"Range: bytes=" + b",".join(b"%d-%d" % (n, n + 1) for n in range(500)) + b"\r\n"
    answer = served.raw(get(UNIX + ranges), unix=True)
    assert status(answer) == 200
    assert b"content-range" not in answer


def test_a_second_request_before_the_first_is_answered_ends_the_connection(served: Served) -> None:
    answer = served.raw(get(UNIX) * 2000, unix=True)
    assert status(answer) == 400 and answer.count(b"HTTP/1.1") == 1


def test_requests_one_after_the_other_share_a_connection(served: Served) -> None:
    with served.connect(unix=True) as sock:
        for _ in range(5):
            sock.sendall(get(UNIX))
            assert status(read_all(sock)) == 200


# -- size


def test_many_headers_and_long_heads_are_refused(served: Served) -> None:
    few = b"".join(b"X-%d: y\r\n" % n for n in range(HEADERS_MAX - 1))
    many = b"".join(b"X-%d: y\r\n" % n for n in range(HEADERS_MAX))
    assert status(served.raw(get(UNIX + few), unix=True)) == 200
    assert status(served.raw(get(UNIX + many), unix=True)) == 431
    assert (
        status(served.raw(get(UNIX + b"X: " + b"y" * HEAD_BYTES_MAX + b"\r\n"), unix=True)) == 431
    )
    assert status(served.raw(get(UNIX, b"/" + b"y" * HEAD_BYTES_MAX), unix=True)) == 431


def test_a_head_without_end_is_cut_off(served: Served) -> None:
    with served.connect(unix=True) as sock:
        sent = 0
        with pytest.raises(OSError):
            sock.sendall(b"GET / HTTP/1.1\r\nX: ")
            while sent < 64 * HEAD_BYTES_MAX:
                sent += sock.send(b"y" * 8192)
        assert sent < 32 * HEAD_BYTES_MAX


def test_a_declared_length_beyond_the_limit_is_refused_before_the_body(served: Served) -> None:
    assert (
        status(served.raw(post(b"Content-Length: %d\r\n" % (INGEST_BYTES_MAX + 1)), unix=True))
        == 413
    )
    stranger = (
        b"POST /login HTTP/1.1\r\nHost: localhost:%d\r\nContent-Length: %d\r\n\r\n"
        % (served.port, REQUEST_BYTES_ANONYMOUS_MAX + 1)
    )  # fmt: skip
    assert status(served.raw(stranger)) == 413
    without_token = (
        b"POST /agent/ingest HTTP/1.1\r\nHost: localhost:%d\r\nContent-Length: 99999999999\r\n\r\n"
        % served.port
    )
    assert status(served.raw(without_token)) == 401


@pytest.mark.parametrize(
    ("path", "limit"), [(b"/api/jobs", REQUEST_BYTES_MAX), (b"/agent/ingest", INGEST_BYTES_MAX)]
)  # fmt: skip
def test_endless_chunks_are_counted_and_cut_off(served: Served, path: bytes, limit: int) -> None:
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    with served.connect(unix=True) as sock:
        sock.sendall(post(b"Transfer-Encoding: chunked\r\n", path=path))
        sent = 0
        try:
            while sent < 3 * limit:
                sock.sendall(chunk)
                sent += len(chunk)
        except OSError:
            pass
        answer = read_all(sock)
    assert sent < 2 * limit
    assert status(answer) == 413
    assert wait_until(lambda: served.room() == 0)


def test_a_caller_who_hangs_up_in_the_middle_of_a_body_leaves_nothing(served: Served) -> None:
    with served.connect(unix=True) as sock:
        sock.sendall(post(b"Content-Length: 1000000\r\n", b"{" * 500_000))
        wait_until(lambda: served.room() > 0)
    wait_until(lambda: served.room() == 0)


def test_a_refused_caller_that_still_sends_can_read_why(served: Served) -> None:
    """A socket closed with unread bytes would take the answer away: an agent must learn that its
    token has ended.
    """
    body = b"x" * INGEST_BYTES_MAX
    assert served.unix("POST", "/agent/ingest", token="nobody." + "x" * 43, body=body).status == 401
    assert served.unix("POST", "/agent/ingest", token=served.token("read"), body=body).status == 403
    assert served.unix("POST", "/agent/nothing", body=body).status == 404


# -- time


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(transport._LIMIT_S, "head", 1.0)
    monkeypatch.setitem(transport._LIMIT_S, "body", 1.0)


def drip(sock: socket.socket, byte: bytes = b"y") -> bool:
    """Send single bytes until the server has had enough."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            sock.sendall(byte)
            sock.settimeout(0.05)
            if sock.recv(1000) == b"":
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


@pytest.mark.parametrize("unix", [True, False])
def test_a_slow_head_is_cut_off_however_often_a_byte_comes(
    hasty: None, served: Served, unix: bool
) -> None:
    with served.connect(unix) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nX: ")
        assert drip(sock)


def test_a_connection_that_says_nothing_is_cut_off(hasty: None, served: Served) -> None:
    with served.connect() as sock:
        assert status(read_all(sock)) == 408


def test_a_slow_body_is_cut_off(hasty: None, served: Served) -> None:
    with served.connect(unix=True) as sock:
        sock.sendall(post(b"Content-Length: 100000\r\n", b"{"))
        assert drip(sock)


def test_a_body_that_nobody_reads_is_cut_off_too(hasty: None, served: Served) -> None:
    """The answer is out long before; the connection must not stay for the rest of a body that never
    ends.
    """
    with served.connect() as sock:
        sock.sendall(
            b"POST / HTTP/1.1\r\nHost: localhost:%d\r\nContent-Length: 100000\r\n\r\n{"
            % served.port
        )
        assert drip(sock)


def test_empty_lines_between_requests_do_not_keep_a_connection(hasty: None, served: Served) -> None:
    with served.connect(unix=True) as sock:
        sock.sendall(get(UNIX))
        assert status(read_all(sock)) == 200
        assert drip(sock, b"\r\n")


def test_a_reader_that_stands_still_is_dropped(
    monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    """F38: what it did not take is not kept for it."""
    monkeypatch.setattr(transport, "WRITE_TIMEOUT_S", 0.4)
    for number in range(30):
        served.job(number, command=["true", "x" * 100_000])
    with served.connect(unix=True) as sock:
        sock.sendall(get(UNIX, b"/api/jobs"))
        wait_until(
            lambda: served.connections() == 0, what="the end of the standing reader's connection"
        )
    assert served.unix("GET", "/api/server").status == 200


# -- many (F42)


def test_agents_are_served_while_loopback_is_flooded(served: Served) -> None:
    flood: list[socket.socket] = []
    try:
        for n in range(CONNECTIONS_TCP_MAX + 100):
            sock = served.connect()
            flood.append(sock)
            if n % 2:
                sock.sendall(b"GET / HTTP/1.1\r\nX: ")
        wait_until(lambda: served.connections(unix=False) == CONNECTIONS_TCP_MAX)
        with Client(served.socket) as client:
            for _ in range(50):
                assert client.request("GET", "/api/server").status == 200
        # those that say nothing give way to one that asks, so nobody is kept out
        assert served.tcp("GET", "/api/server").status == 401
        flood[0].settimeout(5)
        assert status(read_all(flood[0])) == 408
    finally:
        for sock in flood:
            sock.close()
    wait_until(lambda: served.connections(unix=False) == 0)
    assert served.tcp("GET", "/").status == 401


def test_many_slow_viewers_do_not_keep_an_agent_waiting(served: Served) -> None:
    """Long polls hold a connection each and nothing else."""
    polls = [served.connect(unix=True) for _ in range(100)]
    try:
        body = json.dumps({"task": {"uuid": "u", "attempt": 1, "task": "t"}, "wait_s": 30}).encode()
        for sock in polls:
            sock.sendall(post(b"Content-Length: %d\r\n" % len(body), body, b"/agent/poll"))
        wait_until(lambda: served.connections() >= 100)
        assert served.unix("GET", "/api/server").status == 200
    finally:
        for sock in polls:
            sock.close()


def test_requests_from_many_threads_are_all_answered(served: Served) -> None:
    results: list[Any] = []

    def ask() -> None:
        with Client(served.socket) as client:
            results.extend(client.request("GET", "/api/jobs").status for _ in range(20))

    threads = [threading.Thread(target=ask) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [200] * 200
