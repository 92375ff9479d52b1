"""Reading over HTTP: a chart of 2000 points out of 1 M, and all points of a series beside the
peers' readers.
"""

import json
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from bench import dataset
from bench.context import Context
from bench.home import Home, Registered
from bench.load import load
from bench.measure import interleave
from bench.peer import Peer
from bench.result import HEADWAY, Measure, Result
from headway.home.connect import Client

CHART_ROWS, CHART_POINTS, CHART_ROUNDS = 1_000_000, 2000, 20
SERIES_ROWS = 200_000
COLUMNS = {"Accept": "application/x-headway-columns"}


def run(context: Context) -> Iterator[Result]:
    with context.home() as home:
        chart = load(home, dataset.curves(context.size(CHART_ROWS, CHART_ROWS // 10)))
        yield _chart(context, home, chart)
    with context.home() as home:
        yield _series(context, home)


def _chart(context: Context, home: Home, task: Registered) -> Result:
    path = f"/api/jobs/{task.id}/metrics?name=loss&points={CHART_POINTS}"
    with home.client() as client:
        contenders: dict[str, Callable[[int], float]] = {
            f"{HEADWAY}, JSON": lambda _: _timed(
                lambda: _json_values(client, path), at_most=2 * CHART_POINTS
            ),
            HEADWAY: lambda _: _timed(
                lambda: _column_values(client, path), at_most=2 * CHART_POINTS
            ),
        }
        for contender in contenders.values():
            contender(-1)
        measured = interleave(context.size(CHART_ROUNDS, 5), contenders)
    result = Result("chart of 2000 points out of 1 M over HTTP", "ms")
    result.measures = [Measure(who, [1e3 * s for s in took]) for who, took in measured.items()]
    slowest_ms = max(measure.median for measure in result.measures)
    result.at_most("at most 20 ms, in either form", slowest_ms, 20, "ms")
    return result


def _series(context: Context, home: Home) -> Result:
    records = dataset.curves(context.size(SERIES_ROWS, SERIES_ROWS // 10))
    task = load(home, records)
    path = f"/api/jobs/{task.id}/metrics?name=loss"
    folders = {peer.name: _written(context, peer, records) for peer in context.peers}

    def theirs(peer: Peer, number: int) -> float:
        got = peer.run("read", folders[peer.name], "loss")
        if got["values"] != records.rows:
            raise RuntimeError(f"{peer.name} read {got['values']} of {records.rows} values")
        return float(got["read_s"])

    with home.client() as client:
        contenders: dict[str, Callable[[int], float]] = {
            HEADWAY: lambda _: _timed(
                lambda: _column_values(client, path), exactly=records.values[0]
            ),
            f"{HEADWAY}, JSON": lambda _: _timed(
                lambda: _json_values(client, path), exactly=records.values[0]
            ),
        }
        contenders |= {peer.name: partial(theirs, peer) for peer in context.peers}
        measured = interleave(context.rounds, contenders)
    result = Result(
        f"all {records.rows:,} points of a series",
        "s",
        [Measure(w, t) for w, t in measured.items()],
    )
    context.absent(result)
    if context.peers:
        fastest = min(context.peers, key=lambda peer: result.median_of(peer.name) or 0)
        result.faster_than(
            fastest.name, 20, f"at least 20 × faster than the fastest peer ({fastest.name})"
        )
    result.notes.append(
        "Headway over HTTP as binary columns and as JSON; peers with their own readers, imports excluded."
    )
    return result


def _written(context: Context, peer: Peer, records: dataset.Records) -> Path:
    """The peer's own files with these records. Kept in its environment: writing takes minutes, only
    reading counts.
    """
    folder = peer.python.parent.parent / f"series-{records.rows}"
    if not (folder / "result.json").exists():
        context.say(f"  {peer.name} writes {records.rows:,} records, once")
        shutil.rmtree(folder, ignore_errors=True)
        file = context.folder("set") / "set"
        dataset.save(records, file)
        peer.run("write", folder, file, timeout_s=600)
    return folder


def _timed(
    read: Callable[[], "np.ndarray[tuple[int], np.dtype[np.float64]]"],
    *, exactly: dataset.Floats | None = None, at_most: int = 0,
) -> float:  # fmt: skip
    start_s = time.perf_counter()
    values = read()
    took_s = time.perf_counter() - start_s
    if exactly is not None and not np.array_equal(values, exactly):
        raise RuntimeError(f"{len(values)} values came back, or not the ones that were sent")
    if at_most and not 0 < len(values) <= at_most:
        raise RuntimeError(f"{len(values)} points in a chart of at most {at_most}")
    return took_s


def _json_values(client: Client, path: str) -> dataset.Floats:
    answer = client.request("GET", path)
    ((series,),) = (names.values() for names in json.loads(answer.body).values())
    return np.array(series[0]["value"])


def _column_values(client: Client, path: str) -> dataset.Floats:
    body = client.request("GET", path, headers=COLUMNS).body
    (length,) = struct.unpack_from("<I", body, 4)
    (series,) = json.loads(body[8 : 8 + length])["series"]
    return np.frombuffer(body, "<f8", series["rows"], 8 + length + 16 * series["rows"])
