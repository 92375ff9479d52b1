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
from headway.views.text.redraw import Redraws
from headway.views.text.table import fit
from headway.views.text.terminal import DIM, Output
from headway.wire import display

STREAMS: Final = ("stdout", "stderr")
_PENDING_BYTES_MAX: Final = 8 * DISPLAY_LINE_CHARS_MAX
# where the next bytes start: behind a gap that is more than what was sent
OFFSET_HEADER: Final = "x-headway-next"


class Drawing:
    """Rows at the bottom of a terminal that are not finished yet, such as progress bars: drawn anew
    with each change, below all that has been written. Not on a terminal there are none.
    """

    def __init__(self, output: Output) -> None:
        self.output = output
        self._rows: dict[str, list[str]] = {}  # by who draws them
        self._drawn = 0

    def erase(self) -> None:
        if self._drawn:
            up = f"\x1b[{self._drawn - 1}A" if self._drawn > 1 else ""
            self.output.control(f"\r{up}\x1b[J")
            self._drawn = 0

    def set(self, who: str, rows: list[str]) -> None:
        self._rows[who] = rows

    def draw(self) -> None:
        """The last rows where there are more than half a screen. No row may be wider than the
        terminal: it would take two, and could not be drawn over.
        """
        if not self.output.is_tty:
            return
        self.erase()
        rows = [row for rows in self._rows.values() for row in rows]
        rows = rows[-max(1, (self.output.rows or 24) // 2) :]
        if rows:
            columns = (self.output.columns or 80) - 1
            self.output.write("\n".join(fit(row, columns) for row in rows))
            self._drawn = len(rows)


class Sink:
    """Where the bytes of one stream go. A closed pipe is noted, not raised: the job does not end
    with its reader. `drawing`: what has no line end yet is shown there meanwhile.
    """

    def __init__(self, output: Output, drawing: Drawing | None = None) -> None:
        self.output = output
        self.drawing = drawing
        self._redraws = Redraws()
        self.ended_line = True  # what was written last ended with a newline
        self.closed = False
        self._pending = b""
        self._cut = 0  # bytes of a long unfinished line that are not kept for display

    def feed(self, data: bytes) -> None:
        if not self.output.is_tty:
            self._write(data)
            return
        *lines, rest = (self._pending + data).split(b"\n")
        if self.drawing is not None:
            self.drawing.erase()
        if lines:
            self._put(lines, self._cut)
            self._cut = 0
        self._keep(rest)
        self._draw()

    def _put(self, lines: list[bytes], cut: int = 0, *, final: bool = False) -> None:
        texts = [display.decode(line) for line in lines]
        if cut:
            texts[0] = f"{self.output.safe(texts[0])} … ({cut} more bytes)"
        if self.drawing is not None:
            whole = self._redraws.settled([{"text": text} for text in texts], final=final)
            texts = [line["text"] for line in whole]
        if texts:
            self._write_text("".join(f"{self.output.safe(text)}\n" for text in texts))

    def _draw(self) -> None:
        if self.drawing is not None:
            rows = [str(line["text"]) for line in self._redraws.drawn]
            if self._pending:
                rows.append(display.decode(self._pending))
            ascii_only = self.output.ascii_only
            self.drawing.set(
                str(id(self)), [display.line(row, ascii_only=ascii_only) for row in rows]
            )
            self.drawing.draw()

    def finish(self) -> None:
        """The end of the stream: show what had no newline."""
        if self.drawing is not None:
            self.drawing.erase()
            self.drawing.set(str(id(self)), [])
        self._put([self._pending] if self._pending else [], self._cut, final=True)
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

    def _write_text(self, text: str) -> None:
        if not self.closed:
            try:
                self.output.write(text)
            except BrokenPipeError:
                self.closed = True

    def _write(self, data: bytes) -> None:
        if data:
            self.ended_line = data.endswith(b"\n")
        if not self.closed:
            try:
                self.output.write_bytes(data)
            except BrokenPipeError:
                self.closed = True


class Exact:
    """stdout and stderr of the only process of a job, byte by byte, from the raw route."""

    def __init__(self, follow: Follow, out: Output, err: Output, *, attempt: int = 1) -> None:
        self.follow, self.attempt = follow, attempt
        drawing = Drawing(err) if out.is_tty and err.is_tty else None
        self.sinks = {"stdout": Sink(out, drawing), "stderr": Sink(err, drawing)}
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

    def end_line(self) -> None:
        """Before words of our own on stderr: a line end where the program's last line had none."""
        sink = self.sinks["stderr"]
        if not sink.ended_line:
            sink.feed(b"\n")

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
    from. `live`: a line whose moment is not known yet came just now. `bare`: nothing stands in
    front. `fold`: lines that were drawn over are left out, and on a terminal what is being drawn
    is shown below; not for a selection of lines, of which some are missing.
    """

    def __init__(
        self,
        out: Output,
        err: Output,
        *,
        ranks: int,
        live: bool = False,
        bare: bool = False,
        fold: bool = True,
    ) -> None:
        self.live, self.bare = live, bare
        self.outputs = {"stdout": out, "stderr": err, "agent": err}
        self.rank_width = len(str(max(ranks - 1, 0)))
        self.closed = False
        self._redraws = Redraws() if fold else None
        self._drawing = Drawing(err) if out.is_tty and err.is_tty else None
        self._repeats = Repeats() if fold and out.is_tty else None

    def take(self, answer: JsonObject, *, final: bool = False) -> None:
        """`final`: nothing more comes, so that also what has no end yet is written."""
        lines = answer.get("lines") or []
        if self._redraws is not None:
            lines = self._redraws.settled(lines, final=final)
        if self._drawing is not None:
            self._drawing.erase()
        self._put(lines, final)
        if self._drawing is not None and self._redraws is not None:
            rows = [self._row(line) for line in self._redraws.drawn]
            self._drawing.set("", rows if self.live else [])
            self._drawing.draw()

    def finish(self) -> None:
        self.take({}, final=True)

    def end_line(self) -> None:
        """Every line that is written here is whole."""

    def _put(self, lines: list[JsonObject], final: bool) -> None:
        if self._repeats is not None:
            lines = self._repeats.folded(lines, final=final)
        batch: list[str] = []
        target: Output | None = None
        for line in lines:
            output = self.outputs.get(str(line.get("stream")), self.outputs["stdout"])
            if output is not target and target is not None:
                self._write(target, batch)
                batch = []
            target = output
            batch.append(self.line(line, output))
        if target is not None:
            self._write(target, batch)

    def line(self, line: JsonObject, output: Output) -> str:
        text = output.safe(str(line.get("text", "")))
        if self.bare:
            return f"{text}\n"
        return f"{output.style(self._front(line, output), DIM)} {text}\n"

    def _front(self, line: JsonObject, output: Output) -> str:
        rank = line.get("rank")
        who = str(rank) if rank is not None else output.safe(str(line.get("task") or "agent"))
        when = line.get("time") or (
            datetime.now(UTC).isoformat(timespec="seconds") if self.live else None
        )
        return f"{_clock(when)}  {who:>{self.rank_width}} │"

    def _row(self, line: JsonObject) -> str:
        """A row that is being drawn, without colours: it is cut to the width of the terminal."""
        output = self.outputs["stderr"]
        text = display.line(str(line.get("text", "")), ascii_only=output.ascii_only)
        return text if self.bare else f"{self._front(line, output)} {text}"

    def _write(self, output: Output, lines: list[str]) -> None:
        try:
            output.write("".join(lines))
        except BrokenPipeError:
            self.closed = True


class Repeats:
    """The same line of the same rank again and again: shown once, and at its end how often it came
    after that.
    """

    def __init__(self) -> None:
        self._last: JsonObject = {}
        self._count = 0

    def folded(self, lines: list[JsonObject], *, final: bool) -> list[JsonObject]:
        found: list[JsonObject] = []
        for line in lines:
            if line.get("text") and self._is_again(line):
                self._count += 1
                self._last = line
                continue
            found += self._told()
            found.append(line)
            self._last = line
        if final:
            found += self._told()
        return found

    def _is_again(self, line: JsonObject) -> bool:
        return all(line.get(name) == self._last.get(name) for name in ("rank", "stream", "text"))

    def _told(self) -> list[JsonObject]:
        """What stands for the repeats; a single one is shown as it is."""
        count, self._count = self._count, 0
        if count <= 1:
            return [self._last] * count
        return [{**self._last, "text": f"… the same {count} times more"}]


class JsonLines:
    """One JSON object per line, for a program that follows."""

    def __init__(self, out: Output) -> None:
        self.out = out
        self.closed = False

    def take(self, answer: JsonObject, *, final: bool = False) -> None:
        try:
            self.out.write_bytes(
                "".join(json.dumps(line) + "\n" for line in answer.get("lines") or []).encode()
            )
        except BrokenPipeError:
            self.closed = True

    def finish(self) -> None:
        """Every line has been written."""
