"""Reads every byte that the processes print, for bars, epochs and values. Called by `progress_facts.py`.

`progress_parser.py` says what a line is; here is what follows from the lines together: which bar is
still drawn, which loop lies in which, at which step of the run a value was printed. Output that
comes faster than it can be parsed is still read whole: of lines of one shape (the same text but for
its numbers) an even choice is parsed, always with the last one, and rare shapes always.
"""

from __future__ import annotations

import os
import re
from math import inf

from headway.agent.observe.progress_parser import (
    END,
    HINTS,
    INSIDE,
    START,
    Epoch,
    Reading,
    Table,
    is_heading,
    read_heading,
    read_line,
)
from headway.agent.observe.rate import Pace, eta_s, gap_s, rate_of
from headway.model.limits import KIB, PROGRESS_INTERVAL_S
from headway.model.record import RAW
from headway.spool.files import OS_FILES, Files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headway.agent.clock import Clock
    from headway.agent.observe.printed_metrics import PrintedValues
    from headway.agent.ship.tail import Tail
    from headway.model.json_types import JsonObject

    Fact = JsonObject

CHUNK_BYTES = 256 * KIB
LINE_BYTES_MAX = 64 * KIB  # of a line that does not end
LINES_PARSED_MAX = 120  # of one stream in one look; above, lines of one shape are thinned out
BARS_MAX = 16  # of one rank
PENDING_MAX = 256
ERASED_S = 1.0  # a bar that was wiped away and not drawn again for so long is closed
POSITIONS = "observed.pos"
_TRACKERS_OF_STREAM = 1000
_EPOCHS = 900  # number of the tracker of epochs
_SHAPE = b"0123456789.+-eE \t#=>|"
_CURSOR_UP = re.compile(rb"\x1b\[\d*A")
_ERASE = re.compile(rb"\x1b\[[0-2]?K")
_SIDE = re.compile(
    r"\b(?:sanity|val|valid(?:ation|ating)?|eval(?:uat\w*)?|test(?:ing)?|predict\w*)\b", re.I
)
_STEPS = frozenset({"iter", "iters", "iteration", "step", "steps", "global_step", "update", "it"})


class Steps:
    """The count of one loop, going on where it begins anew: the second epoch's first batch follows
    the first's last.
    """

    __slots__ = ("base", "last")

    def __init__(self) -> None:
        self.base = 0
        self.last = -1

    def step(self, count: int) -> int:
        # two lines of one loop may be a little out of order; half way back is a new beginning
        if count < self.last and count <= max(self.last // 2, 1):
            self.base += self.last
            self.last = count
        self.last = max(count, self.last)
        return self.base + count


class Bar:
    """One bar, or one count that goes up, as it was printed last."""

    def __init__(self, number: int, reading: Reading, started_ns: int) -> None:
        self.number = number
        self.reading = reading
        self.started_ns = started_ns
        self.state = "running"
        self.inner = False
        self.erased_s: float | None = None
        self.pace = Pace()
        self.told: tuple[object, ...] = ()
        self.next_s = -inf

    @property
    def fraction(self) -> float | None:
        done, total = self.reading.completed, self.reading.total
        return min(done / total, 1.0) if done is not None and total else None


class Rank:
    """What one rank has printed: its bars, where in its epochs it is, at which step."""

    def __init__(self) -> None:
        self.bars: dict[tuple[str, float | None], Bar] = {}
        self.steps: dict[tuple[str, float | None], Steps] = {}
        self.step: int | None = None  # of the run, by the last line that counted
        self.inner_names: set[str] = set()  # values that lines with a count had
        # values whose step the next drawing of a bar tells, and when they came
        self.pending: list[tuple[Reading, float]] = []
        self.epoch: Epoch | None = None
        self.first_epoch: int | None = None
        self.epoch_fraction = 0.0
        self.epoch_total: int | None = None  # steps of one epoch
        self.epochs: Bar | None = None  # the tracker of epochs

    def base(self, epoch: Epoch) -> int:
        """The number of the first epoch."""
        if epoch.base is not None:
            return epoch.base
        return 0 if self.first_epoch == 0 else 1

    def epochs_done(self, epoch: Epoch) -> int:
        return max(epoch.number - self.base(epoch) + (1 if epoch.when == END else 0), 0)


class Output:
    """One output stream: how far it was read."""

    def __init__(self, rank: int, is_stderr: bool) -> None:
        self.rank, self.is_stderr = rank, is_stderr
        self.position = 0
        self.skips = False  # inside a line that is too long
        self.table: Table | None = None
        self.drawn: Bar | None = None  # the bar that was drawn last
        self.cleared = False  # it was wiped away, to write a line above it
        self.frame: set[tuple[str, float | None]] = set()  # bars of rich that were drawn together
        self.frame_before: set[tuple[str, float | None]] = set()
        self.tentative = (0, 0)  # where a state without an end was read, and its length


class OutputWatch:
    def __init__(
        self,
        task_dir: str,
        tail: "Tail",
        clock: "Clock",
        write: "Callable[[Fact], bool]",
        mask: "Callable[[str], str]",
        printed: "PrintedValues",
        files: Files = OS_FILES,
    ) -> None:
        self._tail, self._clock, self._files = tail, clock, files
        self._write, self._mask, self._printed = write, mask, printed
        self._outputs: dict[str, Output] = {}
        self._ranks: dict[int, Rank] = {}
        self._positions = Positions(os.path.join(task_dir, POSITIONS), files)

    def look(self, now_s: float, last: bool) -> None:
        # stdout before stderr: the drawing of a bar tells the step of what was printed above it
        names = sorted(self._tail.streams, key=lambda name: not name.startswith("stdout"))
        for name in names:
            tailed = self._tail.streams[name]
            if tailed.stream.kind != RAW or tailed.stream.rank is None:
                continue
            output = self._outputs.get(name)
            if output is None:
                output = Output(tailed.stream.rank, name.startswith("stderr"))
                output.position = self._positions.load(name)
                self._outputs[name] = output
            size = self._size_of(tailed.fd) if last else tailed.size
            before = output.position
            self._read(output, tailed.fd, size, now_s, last)
            if output.position != before:
                self._positions.save(name, output.position)
        for number, rank in self._ranks.items():
            self._settle(number, rank, now_s, last)

    def close(self) -> None:
        self._positions.close()

    def _size_of(self, fd: int) -> int:
        try:
            return self._files.fstat(fd).st_size
        except OSError:
            return 0

    # -- bytes to lines

    def _read(self, output: Output, fd: int, size: int, now_s: float, last: bool) -> None:
        lines: list[bytes] = []
        rest = b""
        while output.position < size:
            try:
                data = self._files.pread(
                    fd, min(CHUNK_BYTES, size - output.position), output.position
                )
            except OSError:
                return
            if not data:
                break
            end = max(data.rfind(b"\r"), data.rfind(b"\n")) + 1
            rest = data[end:]
            if end:
                output.position += end
                lines += self._lines(output, data[:end])
            elif len(data) >= LINE_BYTES_MAX:  # one that hardly anybody reads
                output.position += len(data)
                output.skips = True
            if not end and output.position + len(data) >= size:
                break
            if output.position + len(rest) >= size:
                break
        if last and rest:
            lines.append(rest)
            output.position += len(rest)
        for line in _thinned(lines):
            self._take_line(output, line, now_s)
        # the state of a bar has no end until the next one is drawn
        seen = (output.position, len(rest))
        if rest and not last and seen != output.tentative and len(rest) < LINE_BYTES_MAX:
            output.tentative = seen
            reading = read_line(rest.decode("utf-8", "replace")) if _may_be(rest) else None
            if reading is not None and reading.is_bar:
                self._draw(output, self._rank(output.rank), reading, now_s, is_whole=False)

    def _lines(self, output: Output, data: bytes) -> list[bytes]:
        """Whole lines and states of bars that may say something. Most output does not, and is
        passed over fast.
        """
        if output.skips:
            data = re.split(rb"[\r\n]", data, maxsplit=1)[1]
            output.skips = False
        if not _may_be(data) and output.drawn is None and output.table is None:
            return []
        found = []
        in_table = output.table is not None
        for line in data.replace(b"\r", b"\n").split(b"\n"):
            if not line:
                continue  # after the last line of the chunk
            if in_table or _may_be(line) or (output.drawn and _wipes(line)):
                found.append(line)
                # its rows have no word by which they would be known
                in_table = in_table or is_heading(line)
        return found

    # -- lines to readings

    def _rank(self, number: int) -> Rank:
        rank = self._ranks.get(number)
        if rank is None:
            rank = self._ranks[number] = Rank()
        return rank

    def _take_line(self, output: Output, line: bytes, now_s: float) -> None:
        rank = self._rank(output.rank)
        if _CURSOR_UP.search(line):
            self._next_frame(output, rank, now_s)
        if _wipes(line):
            output.cleared = True
            if output.drawn is not None and output.drawn.state == "running":
                output.drawn.erased_s = now_s
            return
        text = line.decode("utf-8", "replace")
        reading = None
        if output.table is not None:
            reading = output.table.read(text)
            if reading is None:
                output.table = None
        if reading is None:
            output.table = output.table or read_heading(text)
            reading = read_line(text) if output.table is None else None
        if reading is None:
            return
        if reading.completed is not None:
            self._draw(output, rank, reading, now_s)
        if reading.epoch is not None:
            self._note_epoch(rank, reading.epoch)
        self._take_values(output, rank, reading, now_s)
        output.cleared = False

    def _next_frame(self, output: Output, rank: Rank, now_s: float) -> None:
        """rich draws all of its bars anew: one that is missing is gone."""
        for key in output.frame_before - output.frame:
            bar = rank.bars.get(key)
            if bar is not None and bar.state == "running":
                bar.state = "closed"
                self._tell(output.rank, bar, now_s)
        output.frame_before, output.frame = output.frame, set()

    # -- bars

    def _draw(
        self, output: Output, rank: Rank, reading: Reading, now_s: float, *, is_whole: bool = True
    ) -> None:
        key = _key(reading)
        bar = rank.bars.get(key)
        if bar is None or _begins_anew(bar, reading):
            bar = self._new_bar(output, rank, key, bar, reading, now_s)
        bar.reading, bar.erased_s = reading, None
        assert reading.completed is not None
        bar.pace.add(now_s, reading.completed)
        full = reading.total is not None and reading.completed >= reading.total
        bar.state = "completed" if full else "running"
        output.drawn = bar
        if reading.form == "rich":
            output.frame.add(key)
        if full:  # of one that goes on, the last state of this look is told
            self._tell(output.rank, bar, now_s)
        if _is_side(reading):
            return
        if reading.epoch is not None:
            self._note_epoch(rank, reading.epoch)
        in_epoch = reading.epoch is not None or (rank.epoch and rank.epoch.when == START)
        if in_epoch and bar.fraction is not None:
            rank.epoch_fraction = bar.fraction
            rank.epoch_total = int(reading.total or 0) or None
        if not bar.inner or in_epoch:
            rank.step = self._step(rank, reading)
            if (
                output.cleared and is_whole
            ):  # it is drawn again below the line that was written above it
                self._write_pending(output.rank, rank, 1)

    def _new_bar(
        self,
        output: Output,
        rank: Rank,
        key: tuple[str, float | None],
        old: Bar | None,
        reading: Reading,
        now_s: float,
    ) -> Bar:
        if old is not None and old.state == "running":
            old.state = "closed"
            self._tell(output.rank, old, now_s)
        others = [b for k, b in rank.bars.items() if k != key and b.state == "running"]
        nested = any(b.reading.is_bar for b in others) and reading.is_bar
        if old is None and len(rank.bars) >= BARS_MAX:
            self._drop_bar(output.rank, rank, now_s)
        used = {other.number for other in rank.bars.values()}
        base = _TRACKERS_OF_STREAM * (2 * output.rank + (1 if output.is_stderr else 0))
        number = next(n for n in range(base, base + BARS_MAX + 2) if n not in used)
        if old is not None:
            number = old.number
        bar = Bar(number, reading, self._clock.wall_ns())
        again = old is not None and reading.is_bar
        bar.inner = nested or again or reading.epoch is not None or _is_side(reading)
        rank.bars[key] = bar
        return bar

    def _drop_bar(self, number: int, rank: Rank, now_s: float) -> None:
        ended = [key for key, bar in rank.bars.items() if bar.state != "running"]
        key = ended[0] if ended else next(iter(rank.bars))
        bar = rank.bars.pop(key)
        if bar.state == "running":
            bar.state = "closed"
            self._tell(number, bar, now_s)

    def _step(self, rank: Rank, reading: Reading) -> int:
        """The step of the run: as the line says, else by its epoch, else counted on."""
        assert reading.completed is not None
        if reading.step is not None:
            return reading.step
        done = int(reading.completed)
        epoch = reading.epoch
        if epoch is None and rank.epoch is not None and rank.epoch.when == START:
            epoch = rank.epoch
        if epoch is not None and reading.total:
            return rank.epochs_done(epoch._replace(when=INSIDE)) * int(reading.total) + done
        return rank.steps.setdefault(_key(reading), Steps()).step(done)

    # -- epochs

    def _note_epoch(self, rank: Rank, epoch: Epoch) -> None:
        if rank.first_epoch is None:
            rank.first_epoch = epoch.number
        before = rank.epoch
        if before is None or epoch.number != before.number:
            rank.epoch_fraction = 0.0
        if before is not None and epoch.total is None:
            epoch = epoch._replace(total=before.total, base=before.base)
        if epoch.total is not None and rank.epochs_done(epoch) > epoch.total:
            epoch = epoch._replace(total=epoch.total + 1)  # `Epoch 0/24` of 25
        rank.epoch = epoch

    def _tell_epochs(self, number: int, rank: Rank, now_s: float, last: bool) -> None:
        epoch = rank.epoch
        if epoch is None:
            return
        job_eta_s = next(
            (b.reading.job_eta_s for b in rank.bars.values() if b.reading.job_eta_s is not None),
            None,
        )
        inner = [b for b in rank.bars.values() if b.inner and b.reading.total]
        total = epoch.total if epoch.total is not None and epoch.total > 1 else None
        if total is None and job_eta_s is None and inner:
            return  # the bar of the epoch says as much
        done = float(rank.epochs_done(epoch))
        if epoch.when != END:
            done += rank.epoch_fraction
        if total is not None:
            done = min(done, float(total))
        done = round(done, 2)
        reading = Reading("epochs", "epoch", done, total, eta_s=job_eta_s)
        bar = rank.epochs
        if bar is None:
            number_of = _TRACKERS_OF_STREAM * 2 * number + _EPOCHS
            bar = rank.epochs = Bar(number_of, reading, self._clock.wall_ns())
        bar.reading = reading
        bar.pace.add(now_s, done)
        # a last epoch may go on behind its bar, with a validation
        full = total is not None and done >= total and (epoch.when == END or last)
        bar.state = "completed" if full else "running"
        self._tell(number, bar, now_s)

    # -- values

    def _take_values(self, output: Output, rank: Rank, reading: Reading, now_s: float) -> None:
        if not reading.values:
            return
        if reading.completed is not None or reading.step is not None:
            # beside a count of its own: its step is the rank's
            step = rank.step
            if reading.completed is None:
                step = reading.step
            rank.inner_names.update(name for name, _ in reading.values)
            self._printed.take(output.rank, reading.values, step or 0)
        elif reading.form == "dict" and len(rank.pending) < PENDING_MAX:
            rank.pending.append((reading, now_s))
        else:
            self._write_values(output.rank, rank, reading)

    def _write_values(self, number: int, rank: Rank, reading: Reading) -> None:
        """Of a line without a count of its own. What lines inside the epoch have, too, is told
        apart: the mean of an epoch is no point of the same curve.
        """
        epoch, values, step = reading.epoch, reading.values, rank.step
        if epoch is not None:
            done = rank.epochs_done(epoch)
            if rank.epoch_total is not None:
                step = done * rank.epoch_total
            elif step is None:
                step = epoch.number
            values = tuple(
                (f"epoch/{name}" if name in rank.inner_names else name, value)
                for name, value in values
            )
        if step is None:
            step = self._printed.next_step(number)
        self._printed.take(number, values, step)

    def _write_pending(self, number: int, rank: Rank, most: int) -> None:
        due, rank.pending = rank.pending[:most], rank.pending[most:]
        for reading, _ in due:
            self._write_values(number, rank, reading)

    # -- telling

    def _settle(self, number: int, rank: Rank, now_s: float, last: bool) -> None:
        """What the lines of this look did not decide."""
        late = [pending for pending in rank.pending if last or now_s >= pending[1] + ERASED_S]
        self._write_pending(number, rank, len(late))

        for bar in rank.bars.values():
            if bar.state != "running":
                continue
            erased = bar.erased_s is not None and now_s >= bar.erased_s + ERASED_S
            if last or erased:
                bar.state = "closed"
            self._tell(number, bar, now_s)

        self._tell_epochs(number, rank, now_s, last)
        epochs = rank.epochs
        if last and epochs is not None and epochs.state == "running":
            epochs.state = "closed"
            self._tell(number, epochs, now_s)

    def _tell(self, number: int, bar: Bar, now_s: float) -> None:
        reading = bar.reading
        said = (reading.label, reading.completed, reading.total, bar.state, bar.inner)
        if said == bar.told or (bar.state == "running" and now_s < bar.next_s):
            return
        rate = reading.rate if reading.rate is not None else rate_of(bar.pace.samples, now_s)
        left_s = None
        if bar.state == "completed":
            left_s = 0.0
        elif bar.state == "running":
            left_s = reading.eta_s
            if left_s is None:
                left_s = eta_s(reading.completed or 0.0, reading.total, rate)
        fact: Fact = {
            "rank": number, "pid": 0, "tracker": bar.number, "msg": [self._mask(reading.label)],
            "completed": reading.completed, "total": reading.total, "state": bar.state,
            "distributed": False, "source": "output", "rate": rate, "eta_s": left_s,
            "started_ns": bar.started_ns, "inner": bar.inner, "gap_s": gap_s(bar.pace),
        }  # fmt: skip
        if self._write(fact):
            bar.told = said
            bar.next_s = now_s + PROGRESS_INTERVAL_S


def _key(reading: Reading) -> tuple[str, float | None]:
    kind = reading.kind
    if not reading.is_bar:
        return ("step" if kind in _STEPS else kind), None
    return kind, reading.total


def _begins_anew(bar: Bar, reading: Reading) -> bool:
    before = bar.reading.completed or 0.0
    assert reading.completed is not None
    if bar.state != "running":
        return reading.completed < before
    if reading.is_bar:
        return reading.completed < before
    return reading.completed <= before / 2 and reading.completed < before


def _is_side(reading: Reading) -> bool:
    """A validation, or something else beside the training itself."""
    return _SIDE.search(reading.label) is not None


def _may_be(data: bytes) -> bool:
    """A cheap look, before anything is decoded or matched."""
    low = data.lower()
    return any(hint in low for hint in HINTS)


def _wipes(line: bytes) -> bool:
    """Blanks over a bar, or the sequence that erases its line."""
    if len(line) >= 2 and not line.strip():
        return True
    return b"\x1b[" in line and _ERASE.search(line) is not None and not _ERASE.sub(b"", line)


def _thinned(lines: list[bytes]) -> "Iterator[bytes] | list[bytes]":
    """All of them, or of each shape an even choice that ends with the last one."""
    if len(lines) <= LINES_PARSED_MAX:
        return lines
    shapes: dict[bytes, list[int]] = {}
    for i, line in enumerate(lines):
        shapes.setdefault(line[:200].translate(None, _SHAPE), []).append(i)
    each = max(LINES_PARSED_MAX // len(shapes), 2)
    kept: list[int] = []
    for places in shapes.values():
        every = -(-len(places) // each)
        kept += places[::-1][::every]
    return [lines[i] for i in sorted(kept)]


class Positions:
    """How far each stream was read, so that the shipper that follows a killed one goes on there.
    One line of fixed length for each.
    """

    LINE = 96

    def __init__(self, path: str, files: Files) -> None:
        self._files, self._path = files, path
        self._fd: int | None = None
        self._lines: dict[str, int] = {}
        self._known: dict[str, int] = {}
        try:
            with open(path, "rb") as file:
                data = file.read(self.LINE * 10_000)
        except OSError:
            return
        for place in range(len(data) // self.LINE):
            words = data[place * self.LINE : (place + 1) * self.LINE].split()
            if len(words) == 2 and words[1].isdigit():
                name = words[0].decode("ascii", "replace")
                self._lines[name], self._known[name] = place, int(words[1])

    def load(self, name: str) -> int:
        return self._known.get(name, 0)

    def save(self, name: str, position: int) -> None:
        place = self._lines.setdefault(name, len(self._lines))
        line = f"{name} {position}".ljust(self.LINE - 1)[: self.LINE - 1] + "\n"
        try:
            if self._fd is None:
                self._fd = self._files.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
            self._files.pwrite(self._fd, line.encode(), place * self.LINE)
        except OSError:
            return  # a shipper that follows would read some of it again

    def close(self) -> None:
        if self._fd is not None:
            self._files.close(self._fd)
            self._fd = None
