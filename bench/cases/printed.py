"""What a line costs the program itself: `print(…, flush=True)` and `logging.info`, plain into a
file and as a job. CPU time of the process, user and system, per line.

The plain program flushes each line as well: that is what a job's `print` does, so that a kill takes
no line with it. Against a `print` that Python buffers (the default into a file), a job pays the
write(2) per line that is measured here.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.context import Context
from bench.home import Home
from bench.jobs import lines
from bench.measure import interleave
from bench.result import HEADWAY, Measure, Result

LINES = 100_000
PROGRAM = lines.__file__
# microseconds of CPU that a line of a job may cost more than one of the plain program
MORE_US_MAX = {"print": 1.0, "logging": 5.0}


def run(context: Context) -> Iterator[Result]:
    count = context.size(LINES, LINES // 5)
    with context.home() as home:
        for what, most_us in MORE_US_MAX.items():
            measured = interleave(
                context.rounds,
                {
                    HEADWAY: lambda _, what=what: _as_job(context, home, what, count),
                    "plain": lambda _, what=what: _plain(context, home, what, count),
                },
            )
            measures = [Measure(who, took) for who, took in measured.items()]
            result = Result(f"CPU of one line by {what}", "µs", measures)
            more_us = result.measures[0].median - result.measures[1].median
            result.at_most(
                f"at most {most_us:g} µs of CPU over the plain program", more_us, most_us, "µs more"
            )
            yield result


def _plain(context: Context, home: Home, what: str, count: int) -> float:
    folder = context.folder("plain")
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        argv = [sys.executable, PROGRAM, what, str(count), str(folder / "took.json")]
        subprocess.run(
            argv, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=home.env, check=True
        )
    return _took(folder)


def _as_job(context: Context, home: Home, what: str, count: int) -> float:
    folder = context.folder("job")
    home.hw("run", sys.executable, PROGRAM, what, str(count), str(folder / "took.json"))
    return _took(folder)


def _took(folder: Path) -> float:
    return float(json.loads((folder / "took.json").read_text())["us"])
