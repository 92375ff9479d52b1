"""`/api/charts` and `/api/jobs/{ref}/names`: metrics as the page draws them, many charts and jobs in one answer.

The answer is binary: b"HWP1", the length of a JSON head, the head, then x and y of each series as doubles. The head is
`{series: [{job key name rank attempt attempts axis count rows first last}]}`, padded with spaces so that the doubles
are aligned.
"""

import json
import sqlite3
from typing import Annotated

import msgspec
import numpy as np

from headway.model.limits import PAGE_JOBS_MAX, PAGE_NAMES_MAX, PAGE_PIXELS_MAX, PAGE_SERIES_MAX
from headway.server import contract
from headway.server.app import Route
from headway.server.http.auth import Role
from headway.server.http.request import Call, Reply, encode
from headway.store import catalog, chart_window
from headway.store.chart_window import Line, Window

BINARY = b"application/x-headway-chart"
_Text = Annotated[str, msgspec.Meta(max_length=512)]


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    jobs: Annotated[list[_Text], msgspec.Meta(max_length=PAGE_JOBS_MAX)]
    names: Annotated[list[_Text], msgspec.Meta(max_length=PAGE_NAMES_MAX)]
    x: _Text = "step"
    low: float | None = None
    high: float | None = None
    pixels: Annotated[int, msgspec.Meta(ge=10, le=PAGE_PIXELS_MAX)] = 800
    rank: Annotated[int, msgspec.Meta(ge=-1)] | None = None
    joined: bool = True


async def charts(call: Call) -> Reply:
    """`{jobs, names, x, low, high, pixels, rank, joined}` → binary columns, at most four points per pixel and series.
    `x`: `step`, `time`, the name of a metric, or `auto`: what `define_metric` said of each metric, else its step;
    `rank`: null is the lowest, -1 all; `joined`: attempts are one line, steps that were done again replace the lost."""
    asked = call.read(Asked)
    return Reply(await call.services.slow_query(read_charts, asked), content_type=BINARY)


def read_charts(c: sqlite3.Connection, asked: Asked) -> bytes:
    window = Window(asked.x, asked.low, asked.high, asked.pixels)
    found: list[Line] = []
    for ref in asked.jobs:
        pk = catalog.resolve(c, ref)
        job_id = ref if len(asked.jobs) > 1 else catalog.load_job(c, pk).id
        room = PAGE_SERIES_MAX - len(found)
        found += chart_window.lines(
            c, pk, job_id, asked.names, window, asked.rank, room, joined=asked.joined
        )
    return _encode(found)


def _encode(found: list[Line]) -> bytes:
    head = [
        {
            "job": line.job, "key": line.key, "name": line.name, "rank": line.rank, "attempt": line.attempt,
            "attempts": line.attempts, "axis": line.axis,
            "count": line.count, "rows": len(line.x), "first": line.first, "last": line.last,
        }
        for line in found
    ]  # fmt: skip
    text = json.dumps({"series": head}).encode()
    text += b" " * (-len(text) % 8)
    columns = [column.astype("<f8", copy=False) for line in found for column in (line.x, line.y)]
    data = np.concatenate(columns).tobytes() if columns else b""
    return b"".join([b"HWP1", len(text).to_bytes(4, "little"), text, data])


async def names(call: Call) -> Reply:
    """`[{name points ranks attempts}]` of all metrics of a job."""
    pk = await call.services.find(call)
    return Reply(encode(await call.services.slow_query(chart_window.names, pk)))


ROUTES = [
    Route("POST", "/api/charts", Role.READ, charts, answer=contract.Raw),
    Route("GET", "/api/jobs/{ref}/names", Role.READ, names, answer=list[contract.MetricName]),
]
