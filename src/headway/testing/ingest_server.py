"""A small ingest server for tests: `/agent/ingest` and `/agent/poll` on a unix socket, with faults
to order.

It applies parts by position exactly as the protocol says, keeps every byte in memory (of output
only with `keep`), and remembers what it was sent. Used by the agent's tests; no part of Headway
imports it.
"""

import json
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headway.model.errors import DamagedError
from headway.model.json_types import JsonObject
from headway.model.record import FACT, GAP, RAW, RECORDS
from headway.wire import batch, frame
from headway.wire.batch import Part, TaskKey


@dataclass
class Stored:
    """What the server has of one stream."""

    kind: str = ""
    position: int = 0
    data: bytearray = field(default_factory=bytearray)  # gaps are zeros here
    gaps: list[JsonObject] = field(default_factory=list)
    received: int = 0  # bytes of all parts, also those that were known already


class FakeServer:
    """`with FakeServer(path) as server:` serves until the end of the block; `stop` and `start` play
    its death.
    """

    def __init__(self, path: Path, *, keep: bool = True) -> None:
        self.path, self.keep = path, keep
        self.streams: dict[str, Stored] = {}
        # (stream, kind, offset, length) of each batch
        self.batches: list[list[tuple[str, str, int, int]]] = []
        self.tasks: set[TaskKey] = set()
        self.tokens: list[str] = []
        self.polls: list[JsonObject] = []
        self.commands: list[JsonObject] = []
        self.refuse: dict[str, str] = {}
        self.status: Callable[[], int] = lambda: 200  # asked before each batch is applied
        self.lose_replies = 0  # so many commits whose answer never leaves
        self.lock = threading.RLock()
        self._news = threading.Condition(self.lock)
        self._listener: socket.socket | None = None
        self._connections: set[socket.socket] = set()

    # -- life

    def start(self) -> None:
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def stop(self) -> None:
        """As if killed: what was committed stays, connections break."""
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        self.path.unlink(missing_ok=True)
        with self.lock:
            connections = list(self._connections)
            self._news.notify_all()
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.stop()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with self.lock:
                self._connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb", buffering=1 << 20) as reader:
                while self._one(connection, reader):
                    pass
        except OSError:
            pass  # the agent or the test has closed it
        finally:
            with self.lock:
                self._connections.discard(connection)

    def _one(self, connection: socket.socket, reader: Any) -> bool:
        line = reader.readline()
        if not line:
            return False
        headers: dict[str, str] = {}
        while (row := reader.readline().decode().strip()) != "":
            name, _, value = row.partition(":")
            headers[name.lower()] = value.strip()
        body = reader.read(int(headers.get("content-length", "0")))
        with self.lock:
            self.tokens.append(headers.get("authorization", ""))
        status, answer = self._answer(line.split()[1].decode(), body)
        if status == 0:
            return False
        data = json.dumps(answer).encode()
        connection.sendall(
            b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (status, len(data)) + data
        )
        return True

    # -- routes

    def _answer(self, path: str, body: bytes) -> tuple[int, JsonObject]:
        if path == "/agent/ingest":
            return self._ingest(body)
        if path == "/agent/poll":
            return 200, self._poll(json.loads(body))
        return 404, {"error": {"message": "no such route"}}

    def _ingest(self, body: bytes) -> tuple[int, JsonObject]:
        status = self.status()
        if status != 200:
            return status, {"error": {"message": f"asked to answer {status}"}}
        try:
            task, _, parts = batch.decode(body)
        except DamagedError as error:
            return 400, {"error": {"message": error.message}}
        with self.lock:
            self.tasks.add(task)
            self.batches.append([(p.stream, p.kind, p.offset, len(p.data)) for p in parts])
            acks: dict[str, int] = {}
            for part in parts:
                if part.stream not in self.refuse:
                    acks[part.stream] = self._apply(part)
            self._news.notify_all()
            if self.lose_replies > 0:
                self.lose_replies -= 1
                return 0, {}
            refused = {p.stream: self.refuse[p.stream] for p in parts if p.stream in self.refuse}
        return 200, {"acks": acks, "refused": refused, "now_ns": 0}

    def _apply(self, part: Part) -> int:
        stored = self.streams.setdefault(part.stream, Stored())
        told = json.loads(bytes(part.data)) if part.kind == GAP else None
        length = told["bytes"] if told is not None else len(part.data)
        stored.received += length
        cut = stored.position - part.offset
        if cut < 0 or cut >= length:
            return stored.position
        if told is not None:
            stored.gaps.append({"offset": stored.position, **told})
            stored.data += bytes(length - cut) if self.keep else b""
        else:
            stored.kind = part.kind
            stored.data += part.data[cut:] if self.keep or part.kind != RAW else b""
        stored.position += length - cut
        return stored.position

    def _poll(self, asked: JsonObject) -> JsonObject:
        with self._news:
            self.polls.append(asked)
            done = set(asked["done"])
            self.commands = [c for c in self.commands if c["seq"] not in done]
            if not self.commands:
                self._news.wait_for(
                    lambda: self.commands or self._listener is None, timeout=asked["wait_s"]
                )
            return {"commands": list(self.commands), "now_ns": 0}

    def order(self, seq: int, do: str, **fields: object) -> None:
        """Queue a command for the agent."""
        with self._news:
            self.commands.append({"seq": seq, "do": do, **fields})
            self._news.notify_all()

    # -- what it has

    def text(self, stream: str) -> bytes:
        with self.lock:
            stored = self.streams.get(stream)
            return b"" if stored is None else bytes(stored.data)

    def position(self, stream: str) -> int:
        with self.lock:
            return self.streams[stream].position if stream in self.streams else 0

    def facts(self, kind: str | None = None) -> list[JsonObject]:
        """Facts of all streams, in order within each; `kind` selects a type."""
        found: list[JsonObject] = []
        with self.lock:
            for name in sorted(self.streams):
                if self.streams[name].kind == RECORDS:
                    found += _facts(bytes(self.streams[name].data))
        return [fact for fact in found if kind in (None, fact.get("type"))]

    def ended(self) -> JsonObject | None:
        return next(iter(self.facts("task_ended")), None)


def _facts(data: bytes) -> list[JsonObject]:
    scan = frame.scan(data, final=True)
    return [
        frame.decode_json(p)
        for kind, p in frame.frames(data[: scan.end], scan.damaged)
        if kind == FACT
    ]


def short_socket(folder: Path, name: str = "s") -> Path:
    """A socket path that fits into sockaddr_un, whatever the length of a test's folder."""
    path = folder / name
    if len(os.fsencode(path)) <= 100:
        return path
    import tempfile

    return Path(tempfile.mkdtemp(prefix="hw-")) / name
