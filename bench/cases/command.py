"""How long a person waits for `hw --version`, and for `hw q` of a finished job with a server up."""

from collections.abc import Callable, Iterator

from bench.context import Context
from bench.home import HW
from bench.measure import interleave
from bench.measure import run as run_command
from bench.peer import environment
from bench.result import HEADWAY, Measure, Result

ROUNDS_MORE = 3
PROGRAMS = {"tensorboardX": "tensorboard", "wandb": "wandb", "trackio": "trackio"}


def run(context: Context) -> Iterator[Result]:
    with context.home() as home:
        home.hw("run", "true")
        (job,) = home.hw_json("ls")
        folder = context.folder("version")

        def command(*argv: str) -> Callable[[int], float]:
            return lambda _: (
                run_command(
                    list(argv), home.env if argv[0] == HW else environment(folder), folder
                ).wall_s
            )

        contenders = {HEADWAY: command(HW, "--version"), "hw q": command(HW, "q", job["id"])}
        for peer in context.peers:
            if peer.name in PROGRAMS:
                program = peer.python.with_name(PROGRAMS[peer.name])
                contenders[program.name] = command(str(program), "--version")
        for contender in contenders.values():
            contender(-1)
        measured = interleave(context.rounds * ROUNDS_MORE, contenders)
    query = measured.pop("hw q")
    result = Result("--version", "s", [Measure(who, took) for who, took in measured.items()])
    context.absent(result)
    result.ratio_at_most("tensorboard", 1 / 8, "at most 1/8 of tensorboard --version")
    yield result
    result = Result(
        "hw q with a server up",
        "s",
        [Measure("hw --version", measured[HEADWAY]), Measure("hw q", query)],
    )
    more_ms = 1e3 * (result.measures[1].median - result.measures[0].median)
    result.at_most("at most 150 ms more than hw --version", more_ms, 150, "ms more")
    yield result
