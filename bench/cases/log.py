"""One `log` call in the training process: headway under `hw run`, a bare write, and the peers."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bench.context import Context
from bench.home import Home
from bench.measure import interleave
from bench.peer import BARE, Peer, read_result
from bench.result import HEADWAY, Measure, Result
from bench.training import OURS, under_hw

CALLS = {
    2: {"headway": 50_000, "bare": 50_000, "trackio": 10_000},
    100: {"headway": 20_000, "bare": 20_000},
}
CALLS_PEER = {2: 1_000, 100: 200}
ROUNDS_MORE = 2


def run(context: Context) -> Iterator[Result]:
    with context.home() as home:
        two, hundred = _measure(context, home, 2), _measure(context, home, 100)
    result = _result(context, "log of 2 values, median", two, "median_us")
    result.ratio_at_most("bare write", 3.5, "at most 3.5 × a bare write")
    result.faster_than("trackio", 3, "at least 3 × faster than trackio")
    result.faster_than("wandb", 40, "at least 40 × faster than wandb")
    result.faster_than("neptune-scale", 40, "at least 40 × faster than neptune-scale")
    yield result
    yield _result(context, "log of 2 values, 99th percentile", two, "p99_us")
    yield _result(context, "log of 2 values, closing included", two, "all_in_us")
    result = _result(context, "log of 100 values, median", hundred, "median_us")
    result.faster_than("trackio", 12, "at least 12 × faster than trackio")
    yield result


def _measure(context: Context, home: Home, values: int) -> dict[str, list[dict[str, Any]]]:
    def alone(peer: Peer, number: int) -> dict[str, Any]:
        return peer.run("log", context.folder(peer.driver), values, calls(peer.driver))

    def ours(number: int) -> dict[str, Any]:
        folder = context.folder(HEADWAY)
        under_hw(home, OURS.start("log", folder, values, calls("headway")), folder)
        return read_result(folder)

    def calls(driver: str) -> int:
        full = CALLS[values].get(driver, CALLS_PEER[values])
        return context.size(full, max(full // 10, 100))

    contenders: dict[str, Callable[[int], dict[str, Any]]] = {
        HEADWAY: ours,
        "bare write": partial(alone, BARE),
    }
    contenders |= {peer.name: partial(alone, peer) for peer in context.peers}
    measured = interleave(context.rounds, contenders)
    again = {
        who: contenders[who] for who in (HEADWAY, "bare write")
    }  # a tight target, and a core's speed comes and goes
    for who, samples in interleave(context.rounds * ROUNDS_MORE, again).items():
        measured[who] += samples
    return measured


def _result(
    context: Context, what: str, measured: dict[str, list[dict[str, Any]]], key: str
) -> Result:
    measures = [
        Measure(who, [float(sample[key]) for sample in samples])
        for who, samples in measured.items()
    ]
    result = Result(what, "µs per call", measures)
    context.absent(result)
    return result
