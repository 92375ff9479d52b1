"""From a cold start: the import alone, and everything up to the return of the first `log`,
interpreter included.
"""

from collections.abc import Callable, Iterator
from functools import partial

from bench.context import Context
from bench.home import Home
from bench.measure import interleave, until_logged
from bench.measure import run as run_command
from bench.peer import Peer, environment
from bench.result import HEADWAY, Measure, Result
from bench.training import OURS

LOADED = f"{HEADWAY}, log looked up"  # `import headway` loads nothing; the first name does
JOINED = f"{HEADWAY}, under hw run"
IMPORTS = {
    "trackio": "import trackio", "wandb": "import wandb", "tensorboardX": "import tensorboardX",
    "neptune-scale": "import neptune_scale", HEADWAY: "import headway", LOADED: "import headway; headway.log",
}  # fmt: skip
# The shortest script a person would write, in a folder of its own; the line it prints stops the
# watch.
FIRST_LOG = {
    "headway": "import headway as hw; hw.log({'loss': 0.5, 'lr': 0.001}, step=0)",
    "trackio": "import trackio; trackio.init(project='bench', embed=False, auto_log_gpu=False, auto_log_cpu=False); "
    "trackio.log({'loss': 0.5, 'lr': 0.001}, step=0)",
    "wandb": "import wandb; run = wandb.init(project='bench', mode='offline', settings=wandb.Settings(console='off', "
    "disable_git=True, x_disable_stats=True, x_disable_meta=True, x_disable_machine_info=True)); "
    "run.log({'loss': 0.5, 'lr': 0.001}, step=0)",
    "tensorboardX": "import tensorboardX; writer = tensorboardX.SummaryWriter('.'); "
    "writer.add_scalar('loss', 0.5, 0); writer.add_scalar('lr', 0.001, 0)",
    "neptune-scale": "import neptune_scale; run = neptune_scale.Run(run_id='run', project='a/b', mode='offline', "
    "log_directory='.', enable_console_log_capture=False, source_tracking_config=None); "
    "run.log_metrics({'loss': 0.5, 'lr': 0.001}, step=0)",
}
_DONE = "; import os; os.write(2, b'logged\\n')"
_IMPORT = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
ROUNDS_MORE = 3  # these are short and noisy: more rounds than elsewhere


def run(context: Context) -> Iterator[Result]:
    rounds = context.rounds * ROUNDS_MORE
    with context.home() as home:
        yield _imports(context, rounds)
        yield _first_logs(context, home, rounds)


def _imports(context: Context, rounds: int) -> Result:
    folder = context.folder("import")

    def once(peer: Peer, name: str, number: int) -> float:
        argv = [str(peer.python), "-I", "-c", _IMPORT.format(IMPORTS[name])]
        return float(run_command(argv, environment(folder), folder).output)

    peers = {HEADWAY: OURS, LOADED: OURS} | {peer.name: peer for peer in context.peers}
    contenders: dict[str, Callable[[int], float]] = {
        name: partial(once, p, name) for name, p in peers.items()
    }
    for contender in contenders.values():
        contender(-1)  # fill the file cache and the bytecode
    result = Result(
        "import", "s", [Measure(who, took) for who, took in interleave(rounds, contenders).items()]
    )
    context.absent(result)
    result.ratio_at_most("tensorboardX", 1 / 8, "at most 1/8 of tensorboardX")
    return result


def _first_logs(context: Context, home: Home, rounds: int) -> Result:
    def first(peer: Peer, number: int) -> float:
        """For Headway a script under plain Python with a server up: it becomes a job of its own."""
        folder = context.folder("first")
        env = home.env if peer is OURS else environment(folder)
        return until_logged([str(peer.python), "-c", FIRST_LOG[peer.name] + _DONE], env, folder)

    def joined(number: int) -> float:
        """A process that a shim would start: its environment names a spool."""
        folder = context.folder("joined")
        (folder / "task.json").write_text("{}")
        env = environment(folder, HEADWAY_SPOOL=str(folder))
        return until_logged([str(OURS.python), "-c", FIRST_LOG[HEADWAY] + _DONE], env, folder)

    contenders: dict[str, Callable[[int], float]] = {
        p.name: partial(first, p) for p in [OURS, *context.peers]
    }
    contenders[JOINED] = joined
    for contender in contenders.values():
        contender(-1)
    measured = interleave(rounds, contenders)
    result = Result(
        "first log from a cold start", "s", [Measure(who, took) for who, took in measured.items()]
    )
    context.absent(result)
    result.notes.append("From the start of the interpreter to the return of the first call.")
    result.ratio_at_most("tensorboardX", 1 / 6, "at most 1/6 of tensorboardX")
    return result
