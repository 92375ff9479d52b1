"""The views' HTTP client against servers that behave in every way but the right one."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.errors import (
    DamagedError,
    HeadwayError,
    NotFoundError,
    RefusedError,
    UnreachableError,
)
from headway.views.api.http_client import Client, LostError, parse_head
from headway.views.api.source import Source
from tests.waiting import wait_until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Thing: a\r\n\r\nhi"


@contextmanager
def listening(path: Path, *serve: Callable[[socket.socket], None]) -> Iterator[Client]:
    """Connection number N is served by function number N; then nobody listens any more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen()

        def work() -> None:
            for one in serve:
                wire, _ = server.accept()
                with wire:
                    one(wire)
            server.close()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        client = Client(path)
        yield client
        client.close()
        thread.join(10)


def says(*answers: bytes) -> Callable[[socket.socket], None]:
    """Reads a request for each answer, then hangs up."""

    def serve(wire: socket.socket) -> None:
        try:
            for answer in answers:
                wire.recv(65536)
                wire.sendall(answer)
        except OSError:
            pass  # the client has left

    return serve


def drips(wire: socket.socket) -> None:
    """One byte at a time, for as long as the other side listens."""
    wire.recv(65536)
    try:
        while True:
            wire.sendall(b"H")
    except OSError:
        pass


@pytest.fixture
def path(home: Path) -> Path:
    return home / "s"


def test_a_connection_is_used_again(path: Path) -> None:
    with listening(path, says(OK, OK)) as client:
        for _ in range(2):
            answer = client.request("GET", "/x")
            assert (answer.status, answer.body, answer.headers["x-thing"]) == (200, b"hi", "a")


def test_a_kept_connection_that_was_closed_meanwhile_is_made_again(path: Path) -> None:
    with listening(path, says(OK), says(OK)) as client:
        assert client.request("GET", "/x").body == b"hi"
        assert client.request("GET", "/x").body == b"hi"


def test_two_answers_that_come_together_are_told_apart(path: Path) -> None:
    with listening(path, says(OK + OK, b"")) as client:
        assert client.request("GET", "/x").body == client.request("GET", "/x").body == b"hi"


@pytest.mark.parametrize("cut", [0, 5, 30, len(OK) - 1])
def test_an_answer_that_is_cut_off_is_no_answer(path: Path, cut: int) -> None:
    with listening(path, says(OK[:cut])) as client, pytest.raises(UnreachableError):
        client.request("GET", "/x")


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 two OK\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"x" * 200_000,
    ],
)  # fmt: skip
def test_what_is_not_our_server_is_told_as_that_and_takes_bounded_memory(
    path: Path, answer: bytes
) -> None:
    with listening(path, says(answer)) as client, pytest.raises(DamagedError):
        client.request("GET", "/x")


def test_a_server_that_sends_byte_by_byte_cannot_hold_us_beyond_the_deadline(path: Path) -> None:
    """F19: one deadline for the whole answer, not one per byte."""

    def slowly(wire: socket.socket) -> None:
        wire.recv(65536)
        stop = threading.Event()
        try:
            while not stop.wait(0.02):
                wire.sendall(b"H")
        except OSError:
            pass

    with (
        listening(path, slowly) as client,
        pytest.raises(UnreachableError, match=r"did not answer within"),
    ):
        client.request("GET", "/x", timeout_s=0.3)


def test_where_nobody_listens_there_is_no_server(path: Path) -> None:
    client = Client(path)
    assert not client.try_connect()
    with pytest.raises(UnreachableError):
        client.request("GET", "/x")


def test_a_flood_without_an_end_of_head_is_cut(path: Path) -> None:
    with listening(path, drips) as client, pytest.raises(HeadwayError):
        client.request("GET", "/x", timeout_s=5)


@given(st.binary(max_size=200))
def test_any_head_is_read_or_refused(data: bytes) -> None:
    try:
        status, _ = parse_head(data)
    except DamagedError:
        return
    assert status >= 0


def test_an_answer_that_is_long_in_coming_is_told_once_and_one_that_never_comes_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.views.api.http_client.VIEW_SLOW_S", 0.01)
    told: list[str] = []

    def late(wire: socket.socket) -> None:
        wire.recv(65536)
        wait_until(lambda: told, 10, "the word about it")
        wire.sendall(OK)
        wire.recv(65536)
        wire.recv(65536)  # until the other side gives up

    with listening(tmp_path / "s", late) as client:
        client.slow = lambda: told.append("slow")
        client.stuck = lambda: "kill it"
        assert client.request("GET", "/").body == b"hi"
        with pytest.raises(UnreachableError, match=r"did not answer within 0\.2 s") as failed:
            client.request("GET", "/", None, 0.2)
    assert told == ["slow"] and failed.value.hint == "kill it"


# -- repeating


def hangs_up(wire: socket.socket) -> None:
    """As a server that is killed over a request."""
    wire.recv(65536)


def json_says(status: str, body: bytes) -> Callable[[socket.socket], None]:
    return says(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status.encode(), len(body)) + body)


def test_a_question_whose_server_is_killed_over_it_is_put_to_the_next(path: Path) -> None:
    with listening(path, hangs_up, hangs_up, json_says("200 OK", b"[1]")) as client:
        source = Source(path.parent, client)
        assert source.get("/x") == [1] and source.repeated
    with listening(path.with_name("t"), json_says("200 OK", b"[2]")) as client:
        source = Source(path.parent, client)
        assert source.get("/x") == [2] and not source.repeated


def test_what_must_not_be_done_twice_is_not_repeated_unless_nobody_has_heard_it(path: Path) -> None:
    with listening(path, hangs_up, json_says("200 OK", b"[1]")) as client:
        with pytest.raises(LostError) as lost:
            Source(path.parent, client).post("/x", {})
        assert lost.value.sent and lost.value.exit_code == 4
        assert Source(path.parent, client).post("/x", {}) == [1]
    with pytest.raises(LostError) as unheard:
        Source(path.parent, Client(path.with_name("none")), start=False).post("/x", {})
    assert not unheard.value.sent


def answers_then_hangs_up(wire: socket.socket) -> None:
    """As a server that is killed over the second request of a connection."""
    json_says("200 OK", b"[1]")(wire)
    hangs_up(wire)


def test_what_a_server_is_killed_over_on_a_kept_connection_is_not_sent_again_either(
    path: Path,
) -> None:
    with listening(path, answers_then_hangs_up, json_says("200 OK", b"[2]")) as client:
        source = Source(path.parent, client)
        assert source.post("/x", {}) == [1]
        with pytest.raises(LostError) as lost:
            source.post("/x", {})
        assert lost.value.sent
        assert source.get("/x") == [2]  # the next server has heard nothing before


def test_what_is_asked_for_again_on_a_kept_connection_is_known_to_be_repeated(path: Path) -> None:
    refused = json_says("409 Conflict", b'{"error": {"code": "refused", "message": "over"}}')
    with listening(
        path, answers_then_hangs_up, refused, json_says("200 OK", b'{"state": "stopped"}')
    ) as client:
        source = Source(path.parent, client)
        assert source.get("/x") == [1]
        assert source.ask("a-00000", "abort") == {"state": "stopped"}


def test_a_kept_connection_that_was_closed_before_is_not_used_even_for_what_must_not_be_done_twice(
    path: Path,
) -> None:
    closed = threading.Event()

    def serve(wire: socket.socket) -> None:
        json_says("200 OK", b"[1]")(wire)
        wire.close()
        closed.set()

    with listening(path, serve, json_says("200 OK", b"[2]")) as client:
        source = Source(path.parent, client)
        assert source.get("/x") == [1]
        assert closed.wait(60)
        assert source.post("/x", {}) == [2] and not source.repeated


def test_one_who_starts_no_server_asks_once(path: Path) -> None:
    with listening(path, hangs_up, json_says("200 OK", b"[1]")) as client:
        with pytest.raises(LostError):
            Source(path.parent, client, start=False).get("/x")
        assert Source(path.parent, client).get("/x") == [1]


def test_a_refusal_of_what_was_asked_for_again_means_that_it_was_done_before(path: Path) -> None:
    refused = json_says("409 Conflict", b'{"error": {"code": "refused", "message": "over"}}')
    gone = json_says("404 Not Found", b'{"error": {"code": "not_found", "message": "none"}}')
    with listening(
        path, hangs_up, refused, json_says("200 OK", b'{"state": "stopped"}'), hangs_up, gone
    ) as client:
        source = Source(path.parent, client)
        assert source.ask("a-00000", "abort") == {"state": "stopped"}
        assert source.delete("/api/jobs/a-00000") is None
    with listening(path.with_name("t"), refused, gone) as client:
        source = Source(path.parent, client)
        with pytest.raises(RefusedError):
            source.ask("a-00000", "abort")
        client.close()
        with pytest.raises(NotFoundError):
            source.delete("/api/jobs/a-00000")
