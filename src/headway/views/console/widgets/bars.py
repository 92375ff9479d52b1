"""Progress: a bar per tracker, with rate and time left. The same tracker on several ranks is one
bar, the slowest's.
"""

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from headway.model.json_types import JsonObject
from headway.views.console.cells import BOLD, CYAN, DIM, GREEN, RED, Line, cells, cut, pad, plain
from headway.views.console.theme import Theme
from headway.views.console.widgets.curve import real
from headway.views.text import format as fmt

Tracker = JsonObject
_LABEL_COLUMNS_MAX: Final = 24
_BAR_COLUMNS_MAX: Final = 48
_BAR_COLUMNS_MIN: Final = 6
_BAR_COLUMNS_GOOD: Final = 20  # numbers are shortened for the sake of a bar of this length
_FOLDED_NAMED: Final = 3  # of trackers that are done; of more, the first and the last
_COLOURS: Final = {"failed": RED, "completed": GREEN, "closed": GREEN}


def bars(trackers: list[Tracker], columns: int, rows: int, theme: Theme) -> list[Line]:
    """At most `rows` lines: a bar for each tracker that runs or failed; those that are done take
    one line together. Where nothing runs any more, the last one of them is drawn.
    """
    groups = _groups(_telling(trackers))
    open_ones = [group for group in groups if _state(group[0]) in ("running", "failed")]
    ended = [group for group in groups if _state(group[0]) not in ("running", "failed")]
    order = open_ones or ended[-1:]
    folded = ended if open_ones else ended[:-1]
    if folded and len(order) + 1 > rows and rows > 1:
        shown = order[: rows - 1]
    else:
        shown = order[:rows] if len(order) <= rows else order[: rows - 1]
    labels = [theme.safe(_label(group[0])) for group in shown]
    label_columns = min(
        max((cells(plain(label)) for label in labels), default=0), _LABEL_COLUMNS_MAX
    )
    fronts = [(("  ", ""), *pad(plain(label, BOLD), label_columns), ("  ", "")) for label in labels]
    rights = [_right(group, columns - label_columns - 6 - _BAR_COLUMNS_GOOD) for group in shown]
    room = min(
        [_BAR_COLUMNS_MAX, *(columns - label_columns - 6 - cells(right) for right in rights)]
    )
    drawn = zip(shown, fronts, rights, strict=True)
    lines = [cut((*front, *_bar(group[0], room), *right), columns) for group, front, right in drawn]
    left = len(order) - len(shown)
    rest = [f"and {fmt.plural(left, 'tracker')} more"] if left and lines else []
    if folded:
        rest.append(_folded(folded, theme))
    if rest and len(lines) < rows:
        lines.append(cut(plain(f"  {' · '.join(rest)}", DIM), columns))
    return lines


def _folded(groups: list[list[Tracker]], theme: Theme) -> str:
    """`done: epoch 0 … epoch 5 (6)`"""
    labels = [theme.safe(_label(group[0])) for group in groups]
    if len(labels) <= _FOLDED_NAMED:
        return f"done: {', '.join(labels)}"
    return f"done: {labels[0]} … {labels[-1]} ({len(labels)})"


def _telling(trackers: list[Tracker]) -> list[Tracker]:
    """Without bare counts that were read off the log (`step 1200`), where a rank has trackers of
    its own.
    """
    own = {one.get("rank") for one in trackers if one.get("source") == "api"}
    return [
        one for one in trackers if not (_is_bare(one) and (None in own or one.get("rank") in own))
    ]


def _is_bare(tracker: Tracker) -> bool:
    known = real(tracker.get("total")) or real(tracker.get("eta_s"))
    return tracker.get("source") == "output" and not known


def _groups(trackers: list[Tracker]) -> list[list[Tracker]]:
    """Trackers of one name over the ranks, the slowest first. Of one rank only the last: others
    were epochs before.
    """
    found: dict[str, dict[Any, Tracker]] = {}
    for tracker in trackers:
        found.setdefault(_label(tracker), {})[tracker.get("rank")] = tracker
    return [
        sorted(group.values(), key=lambda one: (_state(one) != "failed", _share(one) or 0.0))
        for group in found.values()
    ]


def _label(tracker: Tracker) -> str:
    words = tracker.get("msg")
    return (
        " ".join(str(word) for word in words)
        if isinstance(words, list | tuple)
        else str(words or "progress")
    )


def _state(tracker: Tracker) -> str:
    return str(tracker.get("state") or "running")


def _share(tracker: Tracker) -> float | None:
    completed, total = real(tracker.get("completed")), real(tracker.get("total"))
    if (
        completed is None
        or total is None
        or not math.isfinite(total)
        or total <= 0
        or not math.isfinite(completed)
    ):
        return None
    return min(max(completed / total, 0.0), 1.0)


def _bar(tracker: Tracker, room: int) -> Line:
    """All bars are equally long, so that they can be compared; without room for them there are
    none.
    """
    share = _share(tracker)
    if room < _BAR_COLUMNS_MIN:
        return ()
    if share is None:
        return ()  # how far it is, nobody knows: an empty bar would say that nothing is done
    full = int(share * room)
    tip = "╸" if full < room and share * room - full >= 0.5 else ""
    rest = "─" * (room - full - len(tip))
    return (("━" * full + tip, _COLOURS.get(_state(tracker), CYAN)), (rest, DIM), ("  ", ""))


def _right(group: list[Tracker], columns: int) -> Line:
    """The numbers beside the bar, in as few words as `columns` ask for."""
    tracker = group[0]
    pace = _pace(tracker, _state(tracker))
    for counts, long in ((True, True), (True, False), (False, False)):
        line = (*plain(_percent(tracker, counts)), *plain(pace), *plain(_spread(group, long), DIM))
        if cells(line) <= columns:
            break
    return line


def _percent(tracker: Tracker, counts: bool) -> str:
    share, completed = _share(tracker), tracker.get("completed")
    if share is None:
        return f"{fmt.number(completed)} done"
    words = f"{int(share * 100):>3} %"
    show = _shown(tracker)
    return f"{words}  {show(completed)}/{show(tracker.get('total'))}" if counts else words


def _shown(tracker: Tracker) -> Callable[[Any], str]:
    return fmt.size if tracker.get("source") == "folder" else fmt.number


def _pace(tracker: Tracker, state: str) -> str:
    if state in ("failed", "completed", "closed"):
        return f"  {'done' if state == 'completed' else state}"
    if tracker.get("stalled_since"):
        return f"  no step since {fmt.local_time(str(tracker['stalled_since']), datetime.now().astimezone())}"
    rate, left_s = real(tracker.get("rate")), real(tracker.get("eta_s"))
    pace = _rate_words(rate)
    if pace and tracker.get("source") == "folder":
        pace = f"{fmt.size(rate)}/s"
    words = f"  {pace}" if pace else ""
    return words + (
        f"  left {fmt.clock(left_s)}" if left_s is not None and math.isfinite(left_s) else ""
    )


def _rate_words(rate: float | None) -> str:
    """Steps that take seconds are read more easily the other way round."""
    if rate is None or not math.isfinite(rate):
        return ""
    return f"{1 / rate:.3g} s/it" if 0 < rate < 1 else f"{rate:.3g} it/s"


def _spread(group: list[Tracker], long: bool) -> str:
    """Where the ranks are far apart, who is last: a straggler is what one looks for among many."""
    ranks = [one for one in group if one.get("rank") is not None]
    if len(ranks) < 2:
        return ""
    low, high = _share(group[0]), _share(group[-1])
    if low is None or high is None or high - low < 0.01:
        return f"  {len(ranks)} ranks"
    last = f"  rank {group[0]['rank']} is last"
    return f"{last} of {len(ranks)}; first {int(high * 100)} %" if long else last
