"""From a cold start: the import alone, and everything up to the return of the first `log`, interpreter included."""

from collections.abc import Callable, Iterator
from functools import partial

from bench.context import Context
from bench.home import Home
from bench.measure import interleave, until_line
from bench.measure import run as run_command
from bench.peer import Peer, environment
from bench.result import HEADWAY, Measure, Result
from bench.training import OURS

MODULES = {
    "trackio": "trackio", "wandb": "wandb", "tensorboardX": "tensorboardX", "neptune-scale": "neptune_scale",
    "headway": "headway",
}  # fmt: skip
_IMPORT = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
ROUNDS_MORE = 3  # these are short and noisy: more rounds than elsewhere


def run(context: Context) -> Iterator[Result]:
    rounds = context.rounds * ROUNDS_MORE
    with context.home() as home:
        yield _imports(context, rounds)
        yield _first_logs(context, home, context.rounds)


def _imports(context: Context, rounds: int) -> Result:
    folder = context.folder("import")

    def once(peer: Peer, number: int) -> float:
        argv = [str(peer.python), "-I", "-c", _IMPORT.format(MODULES[peer.name])]
        return float(run_command(argv, environment(folder), folder).output)

    contenders: dict[str, Callable[[int], float]] = {p.name: partial(once, p) for p in [OURS, *context.peers]}
    for contender in contenders.values():
        contender(-1)  # fill the file cache and the bytecode
    result = Result("import", "s", [Measure(who, took) for who, took in interleave(rounds, contenders).items()])
    context.absent(result)
    result.ratio_at_most("tensorboardX", 1 / 8, "at most 1/8 of tensorboardX")
    return result


def _first_logs(context: Context, home: Home, rounds: int) -> Result:
    def plain(peer: Peer, number: int) -> float:
        folder = context.folder("first")
        return until_line(peer.start("cold", folder), environment(folder), folder)

    def ours(number: int) -> float:
        """A script under plain Python, with a server up, becomes a job of its own."""
        folder = context.folder("first")
        return until_line(OURS.start("cold", folder), home.env, folder)

    contenders: dict[str, Callable[[int], float]] = {HEADWAY: ours}
    contenders |= {peer.name: partial(plain, peer) for peer in context.peers}
    measured = interleave(rounds, contenders)
    result = Result("first log from a cold start", "s", [Measure(who, took) for who, took in measured.items()])
    context.absent(result)
    result.notes.append("From the start of the interpreter to the return of the first call.")
    result.ratio_at_most("tensorboardX", 1 / 6, "at most 1/6 of tensorboardX")
    return result
