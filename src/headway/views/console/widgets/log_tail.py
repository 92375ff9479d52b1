"""The log: the rule above it that says what is shown, and the lines, each with its time and who
said it.
"""

from functools import lru_cache
from typing import Final

from headway.views.console.cells import (
    BOLD,
    CYAN,
    DIM,
    RED,
    YELLOW,
    Line,
    cells,
    coloured,
    cut,
    plain,
)
from headway.views.console.job_model import Model
from headway.views.console.log_buffer import NOBODY, Entry
from headway.views.console.text_filter import marked
from headway.views.console.theme import Theme
from headway.views.text import format as fmt
from headway.wire import display

LEVELS: Final = {0: "", 20: "info and above", 30: "warnings and errors", 40: "errors"}


@lru_cache(4096)
def clock(time: str | None) -> str:
    """Lines that came together share their time, so this is seldom worked out."""
    found = fmt.moment(time)
    return found.astimezone().strftime("%H:%M:%S") if found else "        "


def rule(model: Model, columns: int, theme: Theme) -> Line:
    """`─ log · rank 3 · "loss" ──────── paused · 14 new ─`"""
    choice, place = model.log.choice, model.place
    if place.mode in ("curves", "help"):
        left = f"─ {'curves over the whole job' if place.mode == 'curves' else 'keys'} "
        return cut(plain(left + "─" * (columns - len(left)), DIM), columns)
    whose = "all ranks" if model.ranks > 1 else ""
    if choice.rank is not None:
        whose = f"rank {choice.rank}"
    words = ["log", whose]
    words += [
        LEVELS.get(choice.level, ""),
        f'with "{theme.safe(choice.text)}"' if choice.text else "",
    ]
    pan = min(place.pan, place.pan_max)
    words.append(f"from column {pan + 1}" if pan else "")
    left = f"─ {' · '.join(word for word in words if word)} "
    right = " esc shows all ─" if choice.text or choice.rank is not None or choice.level else ""
    if place.bottom is not None:
        new = model.log.end - place.bottom
        right = f" paused · {new:,} newer below ─" if new > 0 else " paused ─"
    room = columns - cells(plain(left)) - cells(plain(right))
    if room < 0:
        return cut(plain(left, DIM), columns)
    return ((left, DIM), ("─" * room, DIM), (right, YELLOW if place.bottom is not None else DIM))


def tail(model: Model, columns: int, rows: int) -> list[Line]:
    """The last `rows` entries, or those above the place that was scrolled to."""
    log, place = model.log, model.place
    place.page = max(rows, 1)
    if place.bottom is not None:
        place.bottom = min(max(place.bottom, log.first + min(rows, len(log.shown))), log.end)
    bottom = log.end if place.bottom is None else place.bottom
    first = max(bottom - rows, log.first)
    wide = who_columns(model.ranks)
    entries = log.shown[first - log.first : bottom - log.first]
    if not entries:
        place.pan_max = 0
        return [plain(_nothing(model), DIM)][:rows]
    room = columns - len(_front(entries[0], model.ranks, wide))
    longest = max(cells(coloured(entry.text)) + len(_count(entry)) for entry in entries)
    place.pan_max = max(longest - room, 0)
    pan = min(place.pan, place.pan_max)  # there is always something to be seen, whatever lines come
    sought = log.choice.text
    return [_line(entry, model.ranks, wide, columns, pan, sought) for entry in entries]


def _nothing(model: Model) -> str:
    choice = model.log.choice
    is_narrowed = choice.text or choice.rank is not None or choice.level
    if model.log.total and is_narrowed:
        kept = fmt.plural(len(model.log.kept), "line")
        return f"  none of the last {kept} is like that; esc shows all"
    if model.state == "waiting":
        why = (model.job.get("waiting") or {}).get("reason")
        if why:
            return f"  it waits: {display.line(str(why))}"
        return f"  it waits: hw why {fmt.suffix(model.job_id)} says for what"
    if model.state in fmt.ENDED:
        return "  nothing was written"
    return "  nothing was written yet"


def who_columns(ranks: int) -> int:
    """Room for `0–511` and `17+494`; none for a job of one process."""
    return 0 if ranks < 2 else 2 * len(str(ranks - 1)) + 1


def who(entry: Entry, ranks: int) -> str:
    """`3`, `0–3`, `all`, or `0+4` for rank 0 and four others."""
    said = entry.ranks
    if said == [NOBODY]:
        return "hw"
    if len(said) == 1:
        return str(said[0])
    if len(said) == ranks and NOBODY not in said:
        return "all"
    if said[-1] - said[0] == len(said) - 1:
        return f"{said[0]}–{said[-1]}"
    return f"{said[0]}+{len(said) - 1}"


def _front(entry: Entry, ranks: int, wide: int) -> str:
    return f"{clock(entry.time)} " + (f"{who(entry, ranks):>{wide}} │ " if wide else "│ ")


def _count(entry: Entry) -> str:
    return f" ×{entry.count}" if entry.count > entry.mask.bit_count() else ""


def _line(entry: Entry, ranks: int, wide: int, columns: int, pan: int, sought: str = "") -> Line:
    front, count = _front(entry, ranks, wide), _count(entry)
    colour = ""
    if entry.level >= 40:
        colour = RED
    elif entry.level >= 30:
        colour = YELLOW
    room = max(columns - len(front) - len(count), 1)
    text = coloured(entry.text)
    if colour and len(text) == 1 and not text[0][1]:
        text = plain(text[0][0], colour)
    if entry.mask == 1:
        text = plain(entry.text.removeprefix("hw: ") if wide else entry.text, CYAN)
    if sought:
        text = marked(text, sought)
    return ((front, DIM), *cut(text, room, pan), (count, BOLD))
