"""`hw run --telegraf`: metrics that come as line protocol to UDP 127.0.0.1:8092, Telegraf's own port, become those
of the job. Called by the shipper's loop.

The port is bound for this machine alone. When it is taken, the job's log says by whom.
"""

from __future__ import annotations

import os
import socket
import time

from headway.model.limits import LINE_BYTES_PER_LOOK, SEGMENT_BYTES_MAX
from headway.spool.files import OS_FILES, Files
from headway.spool.stream_names import metrics_name, new_rand
from headway.spool.writer import MetricSegment, Schema
from headway.wire.frame import encode_schema
from headway.wire.identity import process_start
from headway.wire.line_protocol import Steps, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "HEADWAY_TELEGRAF"
ADDRESS = ("127.0.0.1", 8092)
APART = ("job", "headway_job")  # tags that say to which job a line belongs
DATAGRAM_BYTES = 65_535
BUFFER_BYTES = 8 << 20
TELL_S = 10.0


def address_of(text: str) -> tuple[str, int] | None:
    """`1` means Telegraf's own; `127.0.0.1:9000` another one, of this machine."""
    if text in ("", "0"):
        return None
    host, _, port = text.rpartition(":")
    if port.isdigit() and host in ("127.0.0.1", "localhost", "[::1]"):
        return "127.0.0.1", int(port)
    return ADDRESS


class Prepared:
    """The socket, or why there is none. Made by the shim, and inherited by its shippers."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address, self.trouble = address, ""
        self.socket: socket.socket | None = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            self.socket.setblocking(False)
            self.socket.bind(address)
        except OSError as error:
            self.socket.close()
            self.socket = None
            holder = holder_of(address[1])
            words = f" by {holder}" if holder else ""
            self.trouble = f"is taken{words} ({error.strerror}); lines are not read"


_prepared: list[Prepared] = []


def prepare(text: str) -> Prepared | None:
    """Bind the port that `text` names, once in this process and those that it forks."""
    address = address_of(text)
    if address is None:
        return None
    if not _prepared:
        _prepared.append(Prepared(address))
    return _prepared[0]


class LineListener:
    """Nothing here raises: bad lines are counted and told."""

    def __init__(
        self,
        task_dir: str,
        rank: int,
        prepared: Prepared,
        say: "Callable[[str], None]",
        note: "Callable[[str], None]",
        files: Files = OS_FILES,
    ) -> None:
        self._task_dir, self._rank, self._say, self._note, self._files = (
            task_dir,
            rank,
            say,
            note,
            files,
        )
        self._segment: MetricSegment | None = None
        self._rand, self._number = new_rand(), 0
        self._steps = Steps()
        self.lines = self.bad = self._told_bad = 0
        self._last_bad = ""
        self._tell_s = 0.0
        self._socket = prepared.socket
        where = f"udp://{prepared.address[0]}:{prepared.address[1]}"
        if prepared.trouble:
            note(f"--telegraf: {where} {prepared.trouble}")
        else:
            say(f"line protocol is read from {where}")

    def fileno(self) -> int:
        return -1 if self._socket is None else self._socket.fileno()

    def look(self) -> None:
        """Take what has come, up to a limit: the rest of the shipper's work goes on."""
        if self._socket is None:
            return
        frames: list[bytes] = []
        fresh: dict[tuple[str, ...], Schema] = {}
        taken = 0
        try:
            segment = self._open()
            while taken < LINE_BYTES_PER_LOOK:
                try:
                    data = self._socket.recv(DATAGRAM_BYTES)
                except BlockingIOError:
                    break
                except OSError:
                    break
                taken += len(data)
                for raw in data.split(b"\n"):
                    if raw.strip():
                        self._take(raw, segment, fresh, frames)
            if frames:
                segment.append(b"".join(frames))
                segment.declared.update(fresh)
        except OSError as error:
            self._say(f"lines could not be written: {error.strerror}")
            self.leave()
        self._tell()

    def _take(
        self,
        raw: bytes,
        segment: MetricSegment,
        fresh: dict[tuple[str, ...], Schema],
        frames: list[bytes],
    ) -> None:
        self.lines += 1
        try:
            line = parse(raw.decode("utf-8").strip(), apart=APART)
        except (ValueError, OverflowError) as error:
            self.bad += 1
            self._last_bad = f"{str(error)[:100]}: {raw[:80]!r}"
            return
        if not line.values:
            return
        names = tuple(line.values)
        schema = segment.declared.get(names) or fresh.get(names)
        if schema is None:
            number = segment.next_id()
            schema = fresh[names] = Schema(number, len(names))
            frames.append(encode_schema(number, names))
        time_ns = (
            line.time_ns
            if line.time_ns is not None and 0 < line.time_ns < 2**62
            else time.time_ns()
        )
        frames.append(schema.frame(self._steps.of(line), time_ns, list(line.values.values())))

    def _open(self) -> MetricSegment:
        if (
            self._segment is not None
            and (self._segment.size() or SEGMENT_BYTES_MAX) < SEGMENT_BYTES_MAX
        ):
            return self._segment
        if self._segment is not None:
            self._segment.close()
            self._number += 1
        pid = os.getpid()
        opening = {
            "kind": "metrics", "rank": self._rank, "pid": pid, "start": process_start(), "segment": self._number
        }  # fmt: skip
        name = metrics_name(self._rank, pid, self._rand, self._number)
        self._segment = MetricSegment(self._task_dir, name, opening, self._files)
        return self._segment

    def leave(self) -> None:
        if self._segment is not None:
            self._segment.close()
            self._segment = None
        self._rand, self._number = new_rand(), 0

    def _tell(self, *, last: bool = False) -> None:
        now_s = time.monotonic()
        if self.bad > self._told_bad and (last or now_s >= self._tell_s):
            self._tell_s = now_s + TELL_S
            self._told_bad = self.bad
            self._note(
                f"line protocol: {self.bad} of {self.lines} lines cannot be read; the last one: {self._last_bad}"
            )

    def close(self) -> None:
        if self._socket is not None:
            self.look()
            self._tell(last=True)
            self._socket.close()
            self._socket = None
        if self._segment is not None:
            self._segment.close()
            self._segment = None


def holder_of(port: int) -> str:
    """Who has a UDP port of this machine: `pid 4711 (telegraf)`, as far as we may see it."""
    inode = ""
    try:
        with open("/proc/net/udp", encoding="ascii") as file:
            for row in file.read().splitlines()[1:]:
                words = row.split()
                if words[1].rpartition(":")[2] == f"{port:04X}":
                    inode = words[9]
    except (OSError, IndexError):
        return ""
    if not inode:
        return ""
    try:
        pids = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return ""
    for pid in pids:
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                if os.readlink(f"/proc/{pid}/fd/{fd}") == f"socket:[{inode}]":
                    with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
                        return f"pid {pid} ({file.read().strip()})"
        except OSError:
            continue
    return "a process of another user"
