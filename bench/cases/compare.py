"""Looking at many runs: the compare table, the list and table of a very wide sweep, a hundred charts
at once, and all points as Parquet.
"""

import time
from collections.abc import Callable, Iterator

from bench import sweep_data
from bench.context import Context
from bench.result import HEADWAY, Measure, Result
from headway.home.connect import Client

TABLE_JOBS, TABLE_KEYS, TABLE_METRICS = 1_000, 50, 20
WIDE_JOBS, WIDE_METRICS, WIDE_STEPS = 1_500, 1_500, 15
CHARTS, CHART_ROWS = 100, 1_000_000
EXPORT_JOBS, EXPORT_METRICS, EXPORT_STEPS = 10, 10, 100_000
ROUNDS, ROUNDS_QUICK = 7, 2


def run(context: Context) -> Iterator[Result]:
    yield from _table(context)
    yield from _wide(context)
    yield _charts(context)
    yield from _export(context)


def _table(context: Context) -> Iterator[Result]:
    jobs = context.size(TABLE_JOBS, 50)
    with context.home(server=False) as home:
        sweep_data.fill(home.folder, jobs, TABLE_KEYS, TABLE_METRICS, 50)
        home.start()
        body = {"experiment": sweep_data.EXPERIMENT, "metrics_max": TABLE_METRICS}
        with home.client() as client:
            took = _rounds(context, lambda: _post(client, "/api/compare", body))
    what = f"compare table of {jobs:,} jobs × {TABLE_KEYS} keys × {TABLE_METRICS} metrics"
    result = Result(what, "ms", [Measure(HEADWAY, took)])
    result.at_most("under 300 ms", result.measures[0].median, 300, "ms")
    result.notes.append(
        "The answer over HTTP, every config and last, min, max and best of each metric in it."
    )
    yield result


def _wide(context: Context) -> Iterator[Result]:
    jobs, metrics = context.size(WIDE_JOBS, 20), context.size(WIDE_METRICS, 200)
    with context.home(server=False) as home:
        sweep_data.fill(home.folder, jobs, 20, metrics, WIDE_STEPS)
        home.start()
        body = {"experiment": sweep_data.EXPERIMENT, "metrics_max": 8}
        path = f"/api/jobs?experiment={sweep_data.EXPERIMENT}&brief=true&fold=true"
        with home.client() as client:
            lists = _rounds(context, lambda: _get(client, path))
            tables = _rounds(context, lambda: _post(client, "/api/compare", body))
    shape = f"{jobs:,} runs × {metrics:,} metrics × {WIDE_STEPS} steps"
    for what, took in (("list", lists), ("compare table", tables)):
        result = Result(f"{what} of {shape}", "ms", [Measure(HEADWAY, took)])
        result.at_most("under 500 ms", result.measures[0].median, 500, "ms")
        yield result


def _charts(context: Context) -> Result:
    charts, rows = context.size(CHARTS, 10), context.size(CHART_ROWS, 20_000)
    with context.home(server=False) as home:
        # as one job: its metrics share steps and times, as those of one loop do
        sweep_data.fill(home.folder, 1, 1, charts, rows)
        home.start()
        with home.client() as client:
            (job,) = client.request("GET", "/api/jobs").json()
            _await_compacted(home.query)
            names = [sweep_data.name_of(number) for number in range(charts)]
            body = {"jobs": [job["id"]], "names": names, "pixels": 500}
            took = _rounds(context, lambda: _post(client, "/api/charts", body))
    result = Result(
        f"{charts} charts of {rows:,} points each, in one answer", "ms", [Measure(HEADWAY, took)]
    )
    result.at_most("at most 1 s", result.measures[0].median, 1000, "ms")
    return result


def _export(context: Context) -> Iterator[Result]:
    steps = context.size(EXPORT_STEPS, 2_000)
    points = EXPORT_JOBS * EXPORT_METRICS * steps
    with context.home(server=False) as home:
        sweep_data.fill(home.folder, EXPORT_JOBS, 5, EXPORT_METRICS, steps)
        home.start()
        took, size = [], 0
        for number in range(context.size(3, 1)):
            folder = home.folder / f"export-{number}"
            start_s = time.perf_counter()
            home.hw("export", "-e", sweep_data.EXPERIMENT, "--table", "metrics", "-o", str(folder))
            took.append(time.perf_counter() - start_s)
            size = (folder / "metrics.parquet").stat().st_size
    result = Result(f"hw export of {points:,} points to Parquet", "s", [Measure(HEADWAY, took)])
    result.at_most("at most 5 s", result.measures[0].median, 5, "s")
    yield result
    result = Result(
        f"Parquet of {points:,} points", "bytes per point", [Measure(HEADWAY, [size / points])]
    )
    result.at_most("at most 8 bytes", size / points, 8, "bytes")
    yield result


def _await_compacted(query: Callable[..., list[tuple[int]]]) -> None:
    """Housekeeping begins soon after the server."""
    deadline_s = time.monotonic() + 600
    while query("SELECT count(*) FROM blocks")[0][0] and time.monotonic() < deadline_s:
        time.sleep(0.5)


def _rounds(context: Context, ask: Callable[[], None]) -> list[float]:
    """Milliseconds; the first one warms up."""
    took = []
    for _ in range(context.size(ROUNDS, ROUNDS_QUICK) + 1):
        start_s = time.perf_counter()
        ask()
        took.append(1e3 * (time.perf_counter() - start_s))
    return took[1:]


def _get(client: Client, path: str) -> None:
    answer = client.request("GET", path)
    if answer.status != 200:
        raise RuntimeError(f"{path} answered {answer.status}: {answer.body[:300]!r}")


def _post(client: Client, path: str, body: dict[str, object]) -> None:
    answer = client.request("POST", path, json=body)
    if answer.status != 200:
        raise RuntimeError(f"{path} answered {answer.status}: {answer.body[:300]!r}")
