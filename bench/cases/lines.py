"""100,000 lines a second from one process, for ten seconds: into a plain file, and as a job.

Compared as in `flood`.
"""

from collections.abc import Iterator

from bench.cases.flood import compare
from bench.context import Context
from bench.jobs import flood
from bench.result import Result

LINES_PER_S, SECONDS = 100_000, 10


def run(context: Context) -> Iterator[Result]:
    wanted = LINES_PER_S * context.size(SECONDS, 3) * len(flood.LINE.format(0))
    yield from compare(context, wanted, f"{LINES_PER_S:,} lines/s", str(LINES_PER_S))
