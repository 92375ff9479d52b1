"""The report of `hw usage --html`: one page that opens offline, with everything in it. Pure; called
by `cli/usage`.

What is drawn is worked out here; the script beside this file only draws it, and puts words in as
text. The page's own policy lets nothing run but that script, and nothing be loaded at all.
"""

import base64
import bisect
import hashlib
import html
import json
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from typing import Any, Final

from headway.model.json_types import JsonObject
from headway.views.text import format as fmt
from headway.views.usage.tracks import (
    GPU,
    NODE,
    PROCESS,
    RANK,
    Point,
    Track,
    begin_s,
    folded,
    ranks_words,
    span_s,
)
from headway.wire import display

PLACES: Final = 480  # over the job's life
STACKED_MAX: Final = 30  # series of one chart; the smaller ones are one series together
CHECKPOINTS_MAX: Final = 500
_GAP_LOOKS: Final = 3
# key of a chart, its title, its unit, the kinds of tracks that are stacked in it
CHARTS: Final = (
    ("cpu", "CPU", "%", (PROCESS, RANK)), ("memory", "memory", "B", (PROCESS, RANK)), ("load", "GPU load", "%", (GPU,)),
    ("gpu_memory", "GPU memory", "B", (GPU,)), ("power", "GPU power", "W", (GPU,)),
    ("read", "disk read", "B/s", (PROCESS, RANK)), ("write", "disk write", "B/s", (PROCESS, RANK)),
    ("received", "network in", "B/s", (NODE,)), ("sent", "network out", "B/s", (NODE,)),
    ("threads", "threads", "", (PROCESS, RANK)), ("files", "open files", "", (PROCESS, RANK)),
)  # fmt: skip
Object = JsonObject


def render(job: Object, found: list[Track], checkpoints: list[Object]) -> str:
    style, script = _asset("report.css"), _asset("report.js")
    policy = f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    data = json.dumps(contents(job, found, checkpoints), separators=(",", ":"), allow_nan=False)
    for char in "<>&":  # so that no name of a job or process can end the element that holds them
        data = data.replace(char, f"\\u{ord(char):04x}")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(_text(job.get('id')))} · usage</title>\n<style>{style}</style>\n</head>\n<body>\n"
        "<noscript>This report is drawn by a script in the page itself; it loads nothing from elsewhere.</noscript>\n"
        f'<main id="report"></main>\n<script type="application/json" id="data">{data}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _asset(name: str) -> str:
    return (resources.files("headway.views.usage") / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _text(value: object) -> str:
    """Foreign words: what is invisible or turns the reading direction is shown as a mark."""
    return display.line(str(value if value is not None else ""))


# -- what is drawn


def contents(job: Object, found: list[Track], checkpoints: list[Object]) -> Object:
    axis = Axis.of(found, job)
    stacked = _stacked(found)
    rows, colours = tree(found, stacked)
    ranks = len({track.number for track in found if track.kind in (RANK, PROCESS)})
    return {
        "id": _text(job.get("id")), "state": _text(job.get("state")), "begin": axis.begin_s, "length": axis.length_s,
        "command": _text(fmt.shell_words([str(word) for word in job.get("command") or []])),
        "charts": [chart for chart in (_chart(one, found, axis, stacked, colours) for one in CHARTS) if chart],
        "checkpoints": _marks(checkpoints, axis.begin_s, ranks), "tree": rows,
    }  # fmt: skip


def _stacked(found: list[Track]) -> str:
    """Processes are stacked, or whole ranks where so many processes would be a blur."""
    processes, ranks = (sum(track.kind == kind for track in found) for kind in (PROCESS, RANK))
    return RANK if not processes or (processes > STACKED_MAX and ranks > 1) else PROCESS


@dataclass(frozen=True, slots=True)
class Axis:
    """The time of all charts, and when each host was looked at."""

    begin_s: float
    length_s: float
    looks: dict[str, list[float]]
    gap_s: float  # a look tells of the time since the one before, but not of more than this

    @classmethod
    def of(cls, found: list[Track], job: Object) -> "Axis":
        begin, end = begin_s(found, job), span_s(found)[1]
        looks: dict[str, set[float]] = {}
        for track in found:
            looks.setdefault(track.host, set()).update(
                p.time_s for points in track.points.values() for p in points
            )
        ordered = {host: sorted(times) for host, times in looks.items()}
        gaps = sorted(b - a for times in ordered.values() for a, b in pairwise(times))
        usual_s = gaps[len(gaps) // 2] if gaps else end - begin
        return cls(begin, end - begin, ordered, _GAP_LOOKS * usual_s)

    def drawn(self, host: str, points: list[Point]) -> list[float]:
        """Values in equal parts of the time. Each look stands for the time since the one before it."""
        sums, counts = [0.0] * PLACES, [0] * PLACES
        for point in points:
            before = bisect.bisect_left(self.looks[host], point.time_s) - 1
            since_s = self.looks[host][before] if before >= 0 else self.begin_s
            last = self._place(point.time_s)
            first = self._place(max(since_s, point.time_s - self.gap_s)) + (before >= 0)
            for place in range(min(first, last), last + 1):
                sums[place] += point.mean
                counts[place] += 1
        return [
            _short(total / count) if count else 0.0
            for total, count in zip(sums, counts, strict=True)
        ]

    def _place(self, time_s: float) -> int:
        return min(
            max(int((time_s - self.begin_s) / max(self.length_s, 1e-9) * PLACES), 0), PLACES - 1
        )


def _key(track: Track) -> tuple[Any, ...]:
    return (track.host, track.kind, track.number, track.pid, track.attempt)


def _chart(
    chart: tuple[str, str, str, tuple[str, ...]], found: list[Track], axis: Axis, stacked: str,
    colours: dict[tuple[Any, ...], int],
) -> Object | None:  # fmt: skip
    """The series of one chart, the largest at the bottom."""
    what, title, unit, kinds = chart
    kinds = (stacked, *(kind for kind in kinds if kind != stacked)) if stacked in kinds else kinds
    drawn = next(
        (
            some
            for kind in kinds
            if (some := [t for t in found if t.kind == kind and what in t.points])
        ),
        [],
    )
    if not drawn:
        return None
    hosts = len({track.host for track in found})
    curves = [(track, axis.drawn(track.host, track.points[what])) for track in drawn]
    curves.sort(key=lambda pair: -sum(pair[1]))
    series = [
        {
            "label": _text(track.label(hosts) + _rank(track)),
            "colour": colours.get(_key(track), number),
            "values": values,
        }
        for number, (track, values) in enumerate(curves[:STACKED_MAX])
    ]
    rest = [values for _, values in curves[STACKED_MAX:]]
    if rest:
        joined = [_short(sum(column)) for column in zip(*rest, strict=True)]
        series.append({"label": f"{len(rest)} more", "colour": -1, "values": joined})
    return {"key": what, "title": title, "unit": unit, "series": series}


def _rank(track: Track) -> str:
    return f" (rank {track.number})" if track.kind == PROCESS else ""


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _marks(checkpoints: list[Object], begin_s: float, ranks: int) -> list[Object]:
    marks = []
    for one in folded(checkpoints)[-CHECKPOINTS_MAX:]:
        moment = fmt.moment(one.get("time"))
        if moment is not None:
            tags = " · ".join(str(tag) for tag in one.get("tags") or [])
            marks.append(
                {
                    "at": moment.timestamp() - begin_s,
                    "label": _text(tags),
                    "whose": ranks_words(one["ranks"], ranks),
                }
            )
    return marks


def tree(
    found: list[Track], stacked: str = PROCESS
) -> tuple[list[Object], dict[tuple[Any, ...], int]]:
    """Rows of the process tree in order, each with its depth and the colour it is drawn in; and
    that of each track.
    """
    rows: list[Object] = []
    colours: dict[tuple[Any, ...], int] = {}
    for host in dict.fromkeys(track.host for track in found):
        here = [track for track in found if track.host == host]
        rows += [_row(t, 0, None) for t in here if t.kind == NODE] or [
            {"label": _text(host), "depth": 0}
        ]
        numbers = dict.fromkeys(t.number for t in here if t.kind in (RANK, PROCESS))
        for number in numbers:
            rows += [
                _row(t, 1, _colour(colours, t))
                for t in here
                if t.kind == RANK and t.number == number
            ]
            _hang([t for t in here if t.kind == PROCESS and t.number == number], rows, colours)
        rows += [_row(t, 1, _colour(colours, t)) for t in here if t.kind == GPU]
    drawn = {number for key, number in colours.items() if key[1] in (stacked, GPU)}
    for row in rows:
        row["colour"] = row.get("colour") if row.get("colour") in drawn else None
    return rows, colours


def _hang(members: list[Track], rows: list[Object], colours: dict[tuple[Any, ...], int]) -> None:
    """Processes of a rank below their parents. Whoever's parent is not among them stands at the
    top.
    """
    known = {(track.attempt, track.pid) for track in members}
    children: dict[tuple[int, int | None], list[Track]] = {}
    for track in members:
        parent: tuple[int, int | None] = (track.attempt, track.ppid)
        if parent not in known or track.ppid == track.pid:
            parent = (track.attempt, None)
        children.setdefault(parent, []).append(track)

    for attempt in sorted({track.attempt for track in members}):
        waiting = [(track, 2) for track in reversed(children.pop((attempt, None), []))]
        while waiting:
            track, depth = waiting.pop()
            rows.append(_row(track, depth, _colour(colours, track)))
            for child in reversed(children.pop((attempt, track.pid), [])):
                waiting.append((child, depth + 1))


def _colour(colours: dict[tuple[Any, ...], int], track: Track) -> int:
    return colours.setdefault(_key(track), len(colours))


def _row(track: Track, depth: int, colour: int | None) -> Object:
    again = f" (attempt {track.attempt})" if track.attempt > 1 else ""
    cpu, memory = ("load", "gpu_memory") if track.kind == GPU else ("cpu", "memory")
    times = [t for points in track.points.values() for t in (points[0].time_s, points[-1].time_s)]
    return {
        "label": _text(track.label() + again), "depth": depth, "colour": colour,
        "cpu": track.mean(cpu), "cpu_max": track.high(cpu), "memory_max": track.high(memory),
        "seconds": max(times) - min(times) if times else 0.0,
    }  # fmt: skip
