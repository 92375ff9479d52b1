"""The report of `hw usage --html`: one page that opens offline, with everything in it. Pure; called by `cli/usage`.

What is drawn is worked out here; the script beside this file only draws it, and puts words in as text. The page's own
policy lets nothing run but that script, and nothing be loaded at all.
"""

import base64
import hashlib
import html
import json
from importlib import resources
from typing import Any, Final

from headway.views import format as fmt
from headway.views.usage import GPU, NODE, PROCESS, RANK, Track, places, span_s
from headway.wire import display

PLACES: Final = 480  # over the job's life
STACKED_MAX: Final = 30  # series of one chart; the smaller ones are one series together
CHECKPOINTS_MAX: Final = 500
# key of a chart, its title, its unit, the kinds of tracks that are stacked in it
CHARTS: Final = (
    ("cpu", "CPU", "%", (PROCESS, RANK)), ("memory", "memory", "B", (PROCESS, RANK)), ("load", "GPU load", "%", (GPU,)),
    ("gpu_memory", "GPU memory", "B", (GPU,)), ("power", "GPU power", "W", (GPU,)),
    ("read", "disk read", "B/s", (PROCESS, RANK)), ("write", "disk write", "B/s", (PROCESS, RANK)),
    ("received", "network in", "B/s", (NODE,)), ("sent", "network out", "B/s", (NODE,)),
    ("threads", "threads", "", (PROCESS, RANK)), ("files", "open files", "", (PROCESS, RANK)),
)  # fmt: skip
Object = dict[str, Any]


def render(job: Object, found: list[Track], checkpoints: list[Object]) -> str:
    style, script = _asset("usage_page.css"), _asset("usage_page.js")
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
    return (resources.files("headway.views") / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _text(value: Any) -> str:
    """Foreign words: what is invisible or turns the reading direction is shown as a mark."""
    return display.line(str(value if value is not None else ""))


# -- what is drawn -----------------------------------------------------------------------------------------------------


def contents(job: Object, found: list[Track], checkpoints: list[Object]) -> Object:
    begin_s, end_s = span_s(found)
    rows, colours = tree(found)
    return {
        "id": _text(job.get("id")), "state": _text(job.get("state")), "begin": begin_s, "length": end_s - begin_s,
        "command": _text(fmt.shell_words([str(word) for word in job.get("command") or []])),
        "charts": [chart for chart in (_chart(one, found, begin_s, end_s, colours) for one in CHARTS) if chart],
        "checkpoints": _marks(checkpoints, begin_s), "tree": rows,
    }  # fmt: skip


def _key(track: Track) -> tuple[Any, ...]:
    return (track.host, track.kind, track.number, track.pid, track.attempt)


def _chart(
    chart: tuple[str, str, str, tuple[str, ...]], found: list[Track], begin_s: float, end_s: float,
    colours: dict[tuple[Any, ...], int],
) -> Object | None:  # fmt: skip
    """The series of one chart, the largest at the bottom. Single processes where they are known, else ranks."""
    what, title, unit, kinds = chart
    drawn = next((some for kind in kinds if (some := [t for t in found if t.kind == kind and what in t.points])), [])
    if not drawn:
        return None
    hosts = len({track.host for track in found})
    curves = [(track, _drawn(places(track.points[what], begin_s, end_s, PLACES))) for track in drawn]
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


def _drawn(values: list[float | None]) -> list[float]:
    """Nothing before the first and after the last sample; between them the value before where there is none."""
    known = [i for i, value in enumerate(values) if value is not None]
    found, last = [], 0.0
    for i, value in enumerate(values):
        last = value if value is not None else last
        found.append(_short(last) if known and known[0] <= i <= known[-1] else 0.0)
    return found


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _marks(checkpoints: list[Object], begin_s: float) -> list[Object]:
    marks = []
    for one in checkpoints[-CHECKPOINTS_MAX:]:
        moment = fmt.moment(one.get("time"))
        if moment is not None:
            tags = " · ".join(str(tag) for tag in one.get("tags") or [])
            marks.append({"at": moment.timestamp() - begin_s, "label": _text(tags), "rank": one.get("rank")})
    return marks


def tree(found: list[Track]) -> tuple[list[Object], dict[tuple[Any, ...], int]]:
    """Rows of the process tree in order, each with its depth and colour; and the colour of each track."""
    rows: list[Object] = []
    colours: dict[tuple[Any, ...], int] = {}
    for host in dict.fromkeys(track.host for track in found):
        here = [track for track in found if track.host == host]
        rows += [_row(t, 0, None) for t in here if t.kind == NODE] or [{"label": _text(host), "depth": 0}]
        numbers = dict.fromkeys(t.number for t in here if t.kind in (RANK, PROCESS))
        for number in numbers:
            rows += [_row(t, 1, _colour(colours, t)) for t in here if t.kind == RANK and t.number == number]
            _hang([t for t in here if t.kind == PROCESS and t.number == number], rows, colours)
        rows += [_row(t, 1, _colour(colours, t)) for t in here if t.kind == GPU]
    return rows, colours


def _hang(members: list[Track], rows: list[Object], colours: dict[tuple[Any, ...], int]) -> None:
    """Processes of a rank below their parents. Whoever's parent is not among them stands at the top."""
    known = {(track.attempt, track.pid) for track in members}
    below: dict[tuple[int, int | None], list[Track]] = {}
    for track in members:
        above = (track.attempt, track.ppid)
        top = above not in known or track.ppid == track.pid
        below.setdefault((track.attempt, None) if top else above, []).append(track)
    for attempt in sorted({track.attempt for track in members}):
        waiting = [(track, 2) for track in reversed(below.pop((attempt, None), []))]
        while waiting:
            track, depth = waiting.pop()
            rows.append(_row(track, depth, _colour(colours, track)))
            waiting += [(child, depth + 1) for child in reversed(below.pop((attempt, track.pid), []))]


def _colour(colours: dict[tuple[Any, ...], int], track: Track) -> int:
    return colours.setdefault(_key(track), len(colours))


def _row(track: Track, depth: int, colour: int | None) -> Object:
    again = f" (attempt {track.attempt})" if track.attempt > 1 else ""
    cpu, memory = ("load", "gpu_memory") if track.kind == GPU else ("cpu", "memory")
    times = [t for points in track.points.values() for t in (points[0].time_s, points[-1].time_s)]
    return {
        "label": _text(track.label() + again), "depth": depth, "colour": colour if track.kind != RANK else None,
        "cpu": track.mean(cpu), "cpu_max": track.high(cpu), "memory_max": track.high(memory),
        "seconds": max(times) - min(times) if times else 0.0,
    }  # fmt: skip
