"""Points that can be read after the training process has killed itself with SIGKILL right after its
last call.
"""

from collections.abc import Iterator

from bench.context import Context
from bench.home import Home
from bench.measure import run as run_command
from bench.peer import Peer, environment
from bench.result import HEADWAY, Measure, Result
from bench.training import OURS

CALLS = 1000
RUNS, RUNS_PEER = 20, 3
SETTLE_S = 2.0  # wandb-core and the like outlive the process for a moment
KILLED = (-9, 137)


def run(context: Context) -> Iterator[Result]:
    runs, runs_peer = context.size(RUNS, 3), context.size(RUNS_PEER, 1)
    with context.home() as home:
        ours = [_ours(context, home, number) for number in range(runs)]
    result = Result(
        "points after SIGKILL of 1000 logged",
        "points",
        [Measure(HEADWAY, ours)],
        lower_is_better=False,
    )
    for peer in context.peers:
        result.measures.append(
            Measure(peer.name, [_theirs(context, peer) for _ in range(runs_peer)])
        )
    context.absent(result)
    whole = sum(points == CALLS for points in ours)
    result.at_least(f"{CALLS} in {runs} runs of {runs}", whole, runs, "runs")
    yield result


def _ours(context: Context, home: Home, number: int) -> float:
    """Through everything: `hw run`, agent, server, and `hw metrics` at the end."""
    folder, name = context.folder("kill"), f"kill{number}"
    home.hw("--name", name, "run", *OURS.start("kill", folder, CALLS), cwd=folder, ok=(137,))
    (job,) = home.hw_json("ls", "--match", f"^{name}$") or home.hw_json("ls", "--match", name)
    series = home.hw_json("metrics", job["id"])[job["id"]]
    return float(
        min(
            sum(len(entry["value"]) for entry in series.get(metric, []))
            for metric in ("loss", "lr")
        )
    )


def _theirs(context: Context, peer: Peer) -> float:
    folder = context.folder(f"kill-{peer.driver}")
    run_command(peer.start("kill", folder, CALLS), environment(folder), folder, ok=KILLED)
    run_command(["sleep", str(SETTLE_S)], environment(folder), folder)
    return float(peer.run("read", folder, "loss")["values"])
