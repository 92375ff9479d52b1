"""Progress: a bar per tracker, with rate and time left. The same tracker on several ranks is one bar, the slowest's."""

import math
from typing import Any, Final

from headway.views import format as fmt
from headway.views.console.cells import BOLD, CYAN, DIM, GREEN, RED, Line, cells, cut, pad, plain
from headway.views.console.curve import real
from headway.views.console.theme import Theme

Tracker = dict[str, Any]
_LABEL_COLUMNS_MAX: Final = 24
_BAR_COLUMNS_MAX: Final = 48
_BAR_COLUMNS_MIN: Final = 6
_COLOURS: Final = {"failed": RED, "completed": GREEN, "closed": GREEN}


def bars(trackers: list[Tracker], columns: int, rows: int, theme: Theme) -> list[Line]:
    """At most `rows` lines: running ones first, the newest last among equals."""
    groups = _groups(trackers)
    order = sorted(groups, key=lambda group: _state(group[0]) not in ("running", "failed"))
    shown = order[:rows] if len(order) <= rows else order[: rows - 1]
    labels = [theme.safe(_label(group[0])) for group in shown]
    label_columns = min(max((cells(plain(label)) for label in labels), default=0), _LABEL_COLUMNS_MAX)
    lines = [_bar(group, label, label_columns, columns) for group, label in zip(shown, labels, strict=True)]
    left = len(order) - len(shown)
    return lines + ([plain(f"  and {fmt.plural(left, 'tracker')} more", DIM)] if left and lines else [])


def _groups(trackers: list[Tracker]) -> list[list[Tracker]]:
    """Trackers of one name over the ranks, the slowest first."""
    found: dict[str, list[Tracker]] = {}
    for tracker in trackers:
        found.setdefault(_label(tracker), []).append(tracker)
    return [sorted(group, key=lambda one: (_state(one) != "failed", _share(one) or 0.0)) for group in found.values()]


def _label(tracker: Tracker) -> str:
    words = tracker.get("msg")
    return " ".join(str(word) for word in words) if isinstance(words, list | tuple) else str(words or "progress")


def _state(tracker: Tracker) -> str:
    return str(tracker.get("state") or "running")


def _share(tracker: Tracker) -> float | None:
    completed, total = real(tracker.get("completed")), real(tracker.get("total"))
    if completed is None or total is None or not math.isfinite(total) or total <= 0 or not math.isfinite(completed):
        return None
    return min(max(completed / total, 0.0), 1.0)


def _bar(group: list[Tracker], label: str, label_columns: int, columns: int) -> Line:
    tracker, state = group[0], _state(group[0])
    right = (*plain(_percent(tracker)), *plain(_pace(tracker, state)), *plain(_spread(group), DIM))
    front = (("  ", ""), *pad(plain(label, BOLD), label_columns), ("  ", ""))
    room = min(columns - cells(front) - cells(right) - 2, _BAR_COLUMNS_MAX)
    share = _share(tracker)
    if room < _BAR_COLUMNS_MIN:
        return cut((*front, *right), columns)
    colour = _COLOURS.get(state, CYAN)
    if share is None:
        return cut((*front, ("─" * room, DIM), ("  ", ""), *right), columns)
    full = int(share * room)
    tip = "╸" if full < room and share * room - full >= 0.5 else ""
    rest = "─" * (room - full - len(tip))
    return cut((*front, ("━" * full + tip, colour), (rest, DIM), ("  ", ""), *right), columns)


def _percent(tracker: Tracker) -> str:
    share, completed = _share(tracker), tracker.get("completed")
    if share is None:
        return f"{fmt.number(completed)} done"
    return f"{int(share * 100):>3} %  {fmt.number(completed)}/{fmt.number(tracker.get('total'))}"


def _pace(tracker: Tracker, state: str) -> str:
    if state in ("failed", "completed", "closed"):
        return f"  {'done' if state == 'completed' else state}"
    rate, left_s = real(tracker.get("rate")), real(tracker.get("eta_s"))
    words = f"  {rate:.3g} it/s" if rate is not None and math.isfinite(rate) else ""
    return words + (f"  left {fmt.clock(left_s)}" if left_s is not None and math.isfinite(left_s) else "")


def _spread(group: list[Tracker]) -> str:
    """Where the ranks are far apart, who is last: a straggler is what one looks for among many."""
    ranks = [one for one in group if one.get("rank") is not None]
    if len(ranks) < 2:
        return ""
    low, high = _share(group[0]), _share(group[-1])
    if low is None or high is None or high - low < 0.01:
        return f"  {len(ranks)} ranks"
    return f"  rank {group[0]['rank']} is last of {len(ranks)}; first {int(high * 100)} %"
