"""What `hw run` costs beyond the command itself: `hw run true` and plain `true`, server up."""

from collections.abc import Iterator

from bench.context import Context
from bench.home import HW
from bench.measure import interleave
from bench.measure import run as run_command
from bench.result import HEADWAY, Measure, Result

ROUNDS_MORE = 2


def run(context: Context) -> Iterator[Result]:
    with context.home() as home:
        home.hw("run", "true")
        contenders = {
            HEADWAY: lambda _: run_command([HW, "run", "true"], home.env, home.folder).wall_s,
            "plain": lambda _: run_command(["true"], home.env, home.folder).wall_s,
        }
        measured = interleave(context.rounds * ROUNDS_MORE, contenders)
    result = Result("run true", "s", [Measure(who, took) for who, took in measured.items()])
    more_s = result.measures[0].median - result.measures[1].median
    result.at_most("hw run true at most 0.4 s over true", more_s, 0.4, "s more")
    yield result
