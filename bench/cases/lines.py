"""100,000 lines a second from one process, for ten seconds: into a plain file, and as a job.

Compared are the process's own CPU and wall time, interleaved; every stored byte is compared as in `flood`.
"""

from collections.abc import Callable, Iterator
from typing import Any

from bench.cases.flood import as_job, into_file
from bench.context import Context
from bench.jobs import flood
from bench.measure import interleave
from bench.result import HEADWAY, Measure, Result

LINES_PER_S, SECONDS = 100_000, 10


def run(context: Context) -> Iterator[Result]:
    pace = str(LINES_PER_S)
    wanted = LINES_PER_S * context.size(SECONDS, 3) * len(flood.LINE.format(0))
    drains: list[float] = []
    with context.home() as home:
        contenders: dict[str, Callable[[int], dict[str, Any]]] = {
            HEADWAY: lambda _: as_job(context, home, drains, wanted, pace),
            "plain file": lambda _: into_file(context, home, wanted, pace),
        }
        measured = interleave(context.rounds, contenders)
    for key, what in (("cpu_s", "own CPU time"), ("wall_s", "wall time")):
        result = Result(f"{what} of a process that prints {LINES_PER_S:,} lines/s", "s")
        result.measures = [Measure(who, [sample[key] for sample in samples]) for who, samples in measured.items()]
        more = 100 * (result.measures[0].median / result.measures[1].median - 1)
        result.at_most("at most 3 % more than into a plain file", more, 3, "% more")
        yield result
    result = Result(f"all of {LINES_PER_S:,} lines/s stored after the end", "s", [Measure(HEADWAY, drains)])
    result.at_most("nothing lost, all there within 1 s", max(drains), 1, "s")
    yield result
