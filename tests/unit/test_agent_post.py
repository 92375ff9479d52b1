"""HTTP without blocking: one deadline for all of it, a stale connection is renewed, nonsense is
refused (F19, F42).
"""

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headway.agent.transport.http import Answer, Channel
from headway.testing.ingest_server import short_socket

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


class Server:
    """Answers each connection by a function of the test's; `requests` has what came."""

    def __init__(self, path: Path) -> None:
        self.path, self.requests = path, []
        self.talk: Callable[[socket.socket], None] = lambda s: self.answer(s, OK)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(8)
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(one)
            threading.Thread(target=self._guard, args=(one,), daemon=True).start()

    def _guard(self, one: socket.socket) -> None:
        try:
            self.talk(one)
        except OSError:
            pass

    def read(self, one: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            part = one.recv(65536)
            if not part:
                return data
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(body) < length:
            body += one.recv(1 << 20)
        self.requests.append(head + b"\r\n\r\n" + body)
        return head

    def answer(self, one: socket.socket, data: bytes) -> None:
        while self.read(one):
            one.sendall(data)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # closing alone leaves a thread in accept()
        self._listener.close()
        for one in self._open:
            one.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(short_socket(tmp_path))
    yield made
    made.close()


@pytest.fixture
def channel(server: Server) -> Iterator[Channel]:
    made = Channel(str(server.path), "id.secret")
    yield made
    made.close()


def post(channel: Channel, body: list[bytes], timeout_s: float = 10.0) -> Answer:
    """Drive a request to its end, as the shipper's loop does."""
    now_s = time.monotonic()
    answer = channel.start("/x", body, now_s, timeout_s)
    while answer is None:
        poll = select.poll()
        poll.register(
            channel.fileno(), select.POLLIN | (select.POLLOUT if channel.wants_write else 0)
        )
        poll.poll(max(0, (channel.deadline_s - time.monotonic()) * 1000))
        answer = channel.step(time.monotonic())
    assert not channel.busy
    return answer


def test_a_request_goes_out_with_its_head_token_and_pieces(
    server: Server, channel: Channel
) -> None:
    answer = post(channel, [b"abc", b"", memoryview(b"def")])
    assert answer == Answer(200, b"hi")
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(
        b"POST /x HTTP/1.1\r\nHost: headway\r\nAuthorization: Bearer id.secret\r\n"
    )
    assert b"Content-Length: 6" in head and body == b"abcdef"


def test_a_large_body_of_many_pieces_arrives_whole(server: Server, channel: Channel) -> None:
    pieces = [bytes([i % 251]) * 100_000 for i in range(150)]
    assert post(channel, pieces).status == 200
    assert server.requests[0].partition(b"\r\n\r\n")[2] == b"".join(pieces)


def test_the_connection_is_kept_for_the_next_request(server: Server, channel: Channel) -> None:
    assert [post(channel, [b"1"]).status, post(channel, [b"2"]).status] == [200, 200]
    assert len(server._open) == 1


def test_a_kept_connection_that_was_closed_meanwhile_is_renewed(
    server: Server, channel: Channel
) -> None:
    def once(one: socket.socket) -> None:
        server.read(one)
        one.sendall(OK)
        one.close()

    server.talk = once
    assert [post(channel, [b"x" * 500_000]).status for _ in range(4)] == [200] * 4
    assert len(server.requests) == 4


def test_a_fresh_connection_that_breaks_is_told_and_not_tried_for_ever(
    server: Server, channel: Channel
) -> None:
    server.talk = lambda one: one.close()
    answer = post(channel, [b"x"])
    assert answer.status is None and answer.reason


def test_an_answer_before_the_end_of_the_request_counts(server: Server, channel: Channel) -> None:
    """A server that refuses a login answers before it has read a large body, and closes."""

    def refuse(one: socket.socket) -> None:
        one.recv(10)
        one.sendall(b"HTTP/1.1 401 no\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        one.shutdown(socket.SHUT_WR)
        while one.recv(1 << 20):
            pass

    server.talk = refuse
    assert post(channel, [b"x" * 8_000_000]).status == 401


@pytest.mark.parametrize("step_s", [0.0, 0.02])
def test_one_deadline_covers_a_server_that_is_silent_or_drips(
    server: Server, channel: Channel, step_s: float
) -> None:
    """F19: its bytes do not begin the time anew."""

    def drip(one: socket.socket) -> None:
        server.read(one)
        while step_s:
            one.sendall(b"H")
            time.sleep(step_s)
        one.recv(1)

    server.talk = drip
    answer = post(channel, [b"x"], timeout_s=0.3)
    assert answer == Answer(None, b"", "the server did not answer in time")


def test_nobody_at_the_socket_is_told_with_its_path(tmp_path: Path) -> None:
    answer = post(Channel(str(tmp_path / "none")), [b"x"])
    assert answer.status is None and "none" in answer.reason and "No such file" in answer.reason


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"x" * 200_000, b"\r\n\r\n",
    ],
)  # fmt: skip
def test_an_answer_that_is_no_http_of_ours_is_refused(
    server: Server, channel: Channel, data: bytes
) -> None:
    server.talk = lambda one: server.answer(one, data)
    assert post(channel, [b"x"]).status is None


def test_a_closed_channel_can_be_used_again(server: Server, channel: Channel) -> None:
    channel.start("/x", [b"1"], time.monotonic(), 5)
    channel.close()
    assert not channel.busy and channel.fileno() == -1
    assert post(channel, [b"2"]).status == 200
