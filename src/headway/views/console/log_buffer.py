"""The last lines of a job, filtered and folded, for the tail of the console. Pure; filled by
`model`, shown by `tail`.

Folded: the same text from several ranks is one entry with all of them in front, and the same text
again and again is one entry with a count. A rank's own order is never changed: its line joins an
earlier entry only if that rank has said nothing since. What is shown grows line by line; a change
of the filter folds what is kept anew.
"""

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from headway.model.json_types import JsonObject
from headway.model.limits import CONSOLE_FOLD_ENTRIES_MAX, CONSOLE_LINES_MAX, DISPLAY_LINE_CHARS_MAX
from headway.views.console.text_filter import found_in
from headway.views.text import redraw
from headway.wire import display

NOBODY: Final = -1  # the rank of lines that Headway itself or an agent wrote
INFO: Final = 20
_LEVELS: Final = {
    "TRACE": 5, "DEBUG": 10, "INFO": 20, "NOTICE": 25, "WARN": 30, "WARNING": 30, "ERROR": 40, "EXCEPTION": 40,
    "TRACEBACK": 40, "CRITICAL": 50, "FATAL": 50,
}  # fmt: skip
_LEVEL: Final = re.compile(
    r"\b(TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|Warning|ERROR|Error|CRITICAL|FATAL)\b"
    r"|(Traceback) \(most|\w(Error|Exception): "
)
_RANK_MAX: Final = 1 << 16  # ranks come from environments: an absurd one is nobody's
_LEVEL_CHARS: Final = 120  # a level stands at the front of a line
_SGR: Final = re.compile(r"\x1b\[[0-9;:]*m")


# the program's own clock at the front of a line, which differs from rank to rank
_OWN_CLOCK: Final = re.compile(
    r"^\W{0,3}(?:\d{4}[-/]\d\d[-/]\d\d[ T])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
)


def _without_clock(text: str) -> str:
    return _OWN_CLOCK.sub("", text, count=1) if text[:6].strip(" [(")[:1].isdigit() else text


@dataclass(slots=True)
class Said:
    """One line as it came; `text` is safe, with its colours."""

    time: str | None
    rank: int
    text: str
    level: int
    stream: str


@dataclass(slots=True)
class Entry:
    """One line as it is shown. Bit `rank + 1` of `mask` stands for a rank that said it."""

    time: str | None
    mask: int
    text: str
    level: int
    count: int = 1  # lines that it stands for

    @property
    def ranks(self) -> list[int]:
        return [bit - 1 for bit in range(self.mask.bit_length()) if self.mask >> bit & 1]


@dataclass(frozen=True, slots=True)
class Choice:
    """What of the log is shown."""

    text: str = ""
    rank: int | None = None
    level: int = 0

    def takes(self, said: Said) -> bool:
        if self.rank is not None and said.rank not in (self.rank, NOBODY):
            return False
        if said.level < self.level:
            return False
        return not self.text or found_in(self.text, _SGR.sub("", said.text))


@dataclass(slots=True)
class Log:
    """`shown[0]` is entry number `first`: numbers stay when old entries go, so that a paused view
    stands still.
    """

    theme_color: bool = True
    ascii_only: bool = False
    choice: Choice = field(default_factory=Choice)
    kept: deque[Said] = field(default_factory=lambda: deque(maxlen=CONSOLE_LINES_MAX))
    shown: list[Entry] = field(default_factory=list)
    first: int = 0
    total: int = 0  # lines that came
    # text without a clock of its own → number of its last entry
    _places: dict[str, int] = field(default_factory=dict)
    _last: dict[int, int] = field(default_factory=dict)  # rank → number of its last entry
    _levels: dict[int, int] = field(default_factory=dict)  # rank → level of its last line
    # (rank, stream) → its last line, which has no end yet
    _open: dict[tuple[int, str], str] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.first + len(self.shown)

    def add(self, text: str, rank: int = NOBODY, *, time: str | None = None, stream: str = "stdout",
            level: int | None = None) -> None:  # fmt: skip
        safe = display.line(text, color=self.theme_color, ascii_only=self.ascii_only)
        found = self._level(safe, rank) if level is None else level
        said = Said(time, rank, safe, found, stream)
        self.total += 1
        self.kept.append(said)
        if self.choice.takes(said):
            self._fold(said)

    def add_line(self, line: JsonObject) -> None:
        """A line of the `follow` answer. One that goes on with a line without end, or is drawn
        over it, takes its place (B15); one that goes up takes the rows away that it draws over.
        """
        rank = line.get("rank")
        text = str(line.get("text", ""))
        if len(text) > 2 * DISPLAY_LINE_CHARS_MAX and "\r" not in text:
            text = text[: 2 * DISPLAY_LINE_CHARS_MAX]
        whose = int(rank) if isinstance(rank, int) and 0 <= rank < _RANK_MAX else NOBODY
        stream, time = str(line.get("stream") or "stdout"), line.get("time")
        before = self._open.pop((whose, stream), None)
        if before is not None:
            text = redraw.joined(before, text)
        rows, text = redraw.rows_up(text)
        if rows or before is not None:
            self._take_back(whose, stream, rows + (before is not None))
        if line.get("open"):
            self._open[whose, stream] = text
        self.add(text, whose, time=time, stream=stream)

    def _take_back(self, rank: int, stream: str, count: int) -> None:
        """The last lines of one stream go: they are drawn over."""
        lost: list[Said] = []
        for said in reversed(self.kept):
            if len(lost) == count:
                break
            if said.rank == rank and said.stream == stream:
                lost.append(said)
        self.total -= len(lost)
        last = self.shown[-len(lost) :] if lost else []
        on_top = [entry.text for entry in reversed(last)] == [said.text for said in lost]
        alone = all(entry.count == 1 and entry.mask == 1 << (rank + 1) for entry in last)
        for said in lost:
            self._drop(said)
        if on_top and alone:  # the usual case: nothing has to be folded anew
            for entry in last:
                self._places.pop(_without_clock(entry.text), None)
            del self.shown[len(self.shown) - len(last) :]
            if self._last.get(rank, -1) >= self.end:
                self._last.pop(rank)
        elif lost:
            self.choose(self.choice)

    def _drop(self, said: Said) -> None:
        for place in range(len(self.kept) - 1, -1, -1):
            if self.kept[place] is said:
                del self.kept[place]
                return

    def skip(self, count: int, time: str | None) -> None:
        """Lines that came too fast to be kept here."""
        self.total += count - 1
        self.add(f"… {count:,} lines went by too fast; hw logs has them", time=time)

    def choose(self, choice: Choice) -> None:
        self.choice = choice
        self.shown, self._places, self._last = [], {}, {}
        self.first = 0
        for said in self.kept:
            if choice.takes(said):
                self._fold(said)

    def settle(self) -> bool:
        """Put lines that came late into their place by time; whether there were any. A rank's own
        order stays.
        """
        newest, latest, late = "", dict[int, str](), False
        keys: list[str] = []
        for said in self.kept:
            time = (said.time or newest).removesuffix("Z").removesuffix("+00:00")
            key = latest[said.rank] = max(time, latest.get(said.rank, ""))
            late, newest = late or key < newest, max(newest, key)
            keys.append(key)
        if late:
            order = sorted(range(len(keys)), key=keys.__getitem__)
            kept = list(self.kept)
            self.kept = deque((kept[place] for place in order), maxlen=self.kept.maxlen)
            self.choose(self.choice)
        return late

    def _level(self, text: str, rank: int) -> int:
        """Read off the line; an indented line belongs to the one before, such as the frames of a
        traceback.
        """
        found = _LEVEL.search(text[:_LEVEL_CHARS])
        if found:
            word = next(group for group in found.groups() if group)
            level = _LEVELS[word.upper()]
        else:
            level = self._levels.get(rank, INFO) if text[:1] in (" ", "\t") else INFO
        self._levels[rank] = level
        return level

    def _fold(self, said: Said) -> None:
        key = _without_clock(said.text)
        place = self._places.get(key, -1)
        last = self._last.get(said.rank, -1)
        if place >= last and place >= max(self.first, self.end - CONSOLE_FOLD_ENTRIES_MAX):
            entry = self.shown[place - self.first]
            bit = 1 << (said.rank + 1)
            # a rank's own line again counts only as it stands: its clock says when
            if not entry.mask & bit or (place == last and entry.text == said.text):
                entry.count += 1
                entry.mask |= bit
                self._last[said.rank] = place
                return
        self._places[key] = self._last[said.rank] = self.end
        self.shown.append(Entry(said.time, 1 << (said.rank + 1), said.text, said.level))
        if len(self.shown) > CONSOLE_LINES_MAX * 5 // 4:
            self._trim()

    def _trim(self) -> None:
        gone = len(self.shown) - CONSOLE_LINES_MAX
        del self.shown[:gone]
        self.first += gone
        self._places = {text: place for text, place in self._places.items() if place >= self.first}
