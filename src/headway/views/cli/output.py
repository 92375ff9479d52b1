"""What a job wrote, on its way to our stdout and stderr. Called by `run`, `submit --wait` and
`logs`.

`Exact` is for one process: its bytes as they are when nobody but a program reads them, safe text on
a terminal. `Merged` is for several: lines in order of time, each with the clock and its rank in
front.
"""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from headway.model.json_types import JsonObject
from headway.model.limits import DISPLAY_LINE_CHARS_MAX
from headway.views.api.follow import Follow
from headway.views.api.source import Source, job_route
from headway.views.text import format as fmt
from headway.views.text.terminal import DIM, Output
from headway.wire import display

STREAMS: Final = ("stdout", "stderr")
_PENDING_BYTES_MAX: Final = 8 * DISPLAY_LINE_CHARS_MAX
# where the next bytes start: behind a gap that is more than what was sent
OFFSET_HEADER: Final = "x-headway-next"


class Sink:
    """Where the bytes of one stream go. A closed pipe is noted, not raised: the job does not end
    with its reader.
    """

    def __init__(self, output: Output) -> None:
        self.output = output
        self.closed = False
        self._pending = b""
        self._cut = 0  # bytes of a long unfinished line that are not kept for display

    def feed(self, data: bytes) -> None:
        if not self.output.is_tty:
            self._write(data)
            return
        *lines, rest = (self._pending + data).split(b"\n")
        if lines:
            shown = [self._shown(lines[0], self._cut), *(self._shown(line) for line in lines[1:])]
            self._write_text("\n".join(shown) + "\n")
            self._cut = 0
        self._keep(rest)

    def finish(self) -> None:
        """The end of the stream: show what had no newline."""
        if self._pending:
            self._write_text(self._shown(self._pending, self._cut) + "\n")
            self._pending, self._cut = b"", 0

    def _keep(self, rest: bytes) -> None:
        """An unfinished line: of a progress bar the last state, of a line without end the
        beginning.
        """
        last = rest.rstrip(b"\r").rfind(b"\r")
        if last >= 0:
            rest, self._cut = rest[last + 1 :], 0
        if len(rest) > _PENDING_BYTES_MAX:
            self._cut += len(rest) - _PENDING_BYTES_MAX
            rest = rest[:_PENDING_BYTES_MAX]
        self._pending = rest

    def _shown(self, line: bytes, cut: int = 0) -> str:
        shown = self.output.safe(display.decode(line))
        return f"{shown} … ({cut} more bytes)" if cut else shown

    def _write_text(self, text: str) -> None:
        if not self.closed:
            try:
                self.output.write(text)
            except BrokenPipeError:
                self.closed = True

    def _write(self, data: bytes) -> None:
        if not self.closed:
            try:
                self.output.write_bytes(data)
            except BrokenPipeError:
                self.closed = True


class Exact:
    """stdout and stderr of the only process of a job, byte by byte, from the raw route."""

    def __init__(self, follow: Follow, out: Output, err: Output, *, attempt: int = 1) -> None:
        self.follow, self.attempt = follow, attempt
        self.sinks = {"stdout": Sink(out), "stderr": Sink(err)}
        self.offsets = dict.fromkeys(STREAMS, 0)

    def take(self, answer: JsonObject) -> None:
        done = bool(answer.get("done"))
        newest = max(
            [self.attempt, *(int(e.get("attempt") or 0) for e in answer.get("events") or [])]
        )
        # the job was tried again: the streams of the new attempt start anew
        if newest > self.attempt:
            self._pump(STREAMS)
            self.attempt, self.offsets = newest, dict.fromkeys(STREAMS, 0)
        self._pump(STREAMS)  # both: what has no newline yet is not among the answer's lines
        if done:
            for sink in self.sinks.values():
                sink.finish()

    @property
    def closed(self) -> bool:
        return any(sink.closed for sink in self.sinks.values())

    def _pump(self, names: Iterable[str]) -> None:
        for name in names:
            while self._read(name):
                pass

    def _read(self, name: str) -> bool:
        """Whether there was something, and so may be more."""
        query = [
            ("format", "raw"), ("attempt", self.attempt), ("rank", 0), ("stream", name), ("offset", self.offsets[name]),
        ]  # fmt: skip
        data, after = self.follow.ask(lambda source: read_raw(source, self.follow.job_id, query))
        moved = after > self.offsets[name]
        self.offsets[name] = after
        self.sinks[name].feed(data)
        return bool(moved)


def read_raw(source: Source, job_id: str, query: list[tuple[str, Any]]) -> tuple[bytes, int]:
    """Bytes of one stream, and the offset behind them."""
    answer = source.raw(job_route(job_id, "logs"), query)
    asked = int(dict(query).get("offset") or 0)
    after = answer.headers.get(OFFSET_HEADER, "")
    return answer.body, int(after) if after.isdigit() else asked + len(answer.body)


@lru_cache(4096)
def _clock(time: str | None) -> str:
    """Lines that came together share their time, so this is seldom worked out."""
    found = fmt.moment(time)
    return found.astimezone().strftime("%H:%M:%S") if found else "--:--:--"


class Merged:
    """Lines of several ranks with clock and rank in front; each goes to the stream that it came
    from. `live`: a line whose moment is not known yet came just now.
    """

    def __init__(self, out: Output, err: Output, *, ranks: int, live: bool = False) -> None:
        self.live = live
        self.outputs = {"stdout": out, "stderr": err, "agent": err}
        self.rank_width = len(str(max(ranks - 1, 0)))
        self.closed = False

    def take(self, answer: JsonObject) -> None:
        batch: list[str] = []
        target: Output | None = None
        for line in answer.get("lines") or []:
            output = self.outputs.get(str(line.get("stream")), self.outputs["stdout"])
            if output is not target and target is not None:
                self._write(target, batch)
                batch = []
            target = output
            batch.append(self.line(line, output))
        if target is not None:
            self._write(target, batch)

    def line(self, line: JsonObject, output: Output) -> str:
        rank = line.get("rank")
        who = str(rank) if rank is not None else output.safe(str(line.get("task") or "agent"))
        when = line.get("time") or (
            datetime.now(UTC).isoformat(timespec="seconds") if self.live else None
        )
        front = output.style(f"{_clock(when)}  {who:>{self.rank_width}} │", DIM)
        return f"{front} {output.safe(str(line.get('text', '')))}\n"

    def _write(self, output: Output, lines: list[str]) -> None:
        try:
            output.write("".join(lines))
        except BrokenPipeError:
            self.closed = True


class JsonLines:
    """One JSON object per line, for a program that follows."""

    def __init__(self, out: Output) -> None:
        self.out = out
        self.closed = False

    def take(self, answer: JsonObject) -> None:
        try:
            self.out.write_bytes(
                "".join(json.dumps(line) + "\n" for line in answer.get("lines") or []).encode()
            )
        except BrokenPipeError:
            self.closed = True
