"""From `print()` to the eye: `hw logs -f` and the live view of a job of 8 ranks, and what the live
view costs.

Each line carries the moment at which it was printed; the reader of the pipe or of the
pseudo-terminal notes when its bytes came. Both are watched at once, on the same cores as the job,
its agent and the server.
"""

import re
import sys
import time
from collections.abc import Iterator
from statistics import quantiles
from typing import Any

from bench.context import Context
from bench.home import HW, Home
from bench.measure import cpu_s_of, wait_until
from bench.peer import BENCH
from bench.result import HEADWAY, Measure, Result
from bench.terminal import Reader, on_pipe, on_terminal

RANKS = 8
QUIET_LINES_PER_S, BUSY_LINES_PER_S = 2, 10  # of each rank
SETTLE_S = 3.0
BEAT = re.compile(rb"beat (\d+) (\d+) (\d{19})")


def run(context: Context) -> Iterator[Result]:
    watch_s = float(context.size(20, 8))
    with context.home() as home:
        at_rest = _at_rest(context, home, watch_s)
        shares: dict[int, float] = {}
        for per_s in (QUIET_LINES_PER_S, BUSY_LINES_PER_S):
            seen = _watch(home, per_s, watch_s)
            shares[per_s] = seen.pop("cpu")
            for who, delays in seen.items():
                yield _delays(f"print() to {who}, {RANKS} ranks × {per_s} lines/s", delays)
    result = Result("CPU of the live view", "% of a core")
    result.measures.append(Measure("nothing happens", [at_rest]))
    result.measures += [
        Measure(f"{RANKS} ranks × {rate} lines/s", [share]) for rate, share in shares.items()
    ]
    result.at_most("at rest at most 5 %", at_rest, 5, "%")
    result.at_most("under load at most 10 %", shares[BUSY_LINES_PER_S], 10, "%")
    yield result


def _delays(what: str, delays_ms: list[float]) -> Result:
    p95_ms = quantiles(delays_ms, n=20)[-1]
    result = Result(what, "ms", [Measure(HEADWAY, delays_ms, f"95th percentile {p95_ms:.0f} ms")])
    result.at_most("median at most 100 ms", result.measures[0].median, 100, "ms")
    result.at_most("95th percentile at most 250 ms", p95_ms, 250, "ms")
    return result


def _watch(home: Home, per_s: int, watch_s: float) -> dict[str, Any]:
    """Delays in ms of every line that was printed while both were watching, and the share of the
    live view.
    """
    program = str(BENCH / "jobs" / "beat.py")
    lasting_s = watch_s + SETTLE_S + 15
    job = home.hw_json(
        "-n", str(RANKS), "submit", sys.executable, program, str(per_s), str(lasting_s)
    )["id"]
    logs, view = [HW, "logs", "-f", job], [HW, "watch", job]
    with (
        on_pipe(logs, home.env, home.folder) as pipe,
        on_terminal(view, home.env, home.folder) as terminal,
    ):
        for reader in (pipe, terminal):
            wait_until(
                lambda reader=reader: len(_ranks(reader)) == RANKS, 30, "not all ranks are seen"
            )  # type: ignore[misc]
        time.sleep(SETTLE_S)
        cpu_s, start_s = cpu_s_of(terminal.pid), time.time()
        time.sleep(watch_s)
        share = 100 * (cpu_s_of(terminal.pid) - cpu_s) / (time.time() - start_s)
        time.sleep(1)  # the last lines of the window are on their way
    home.hw("abort", job)
    until_s = start_s + watch_s
    found = {
        "hw logs -f": _seen(pipe, start_s, until_s),
        "the live view": _seen(terminal, start_s, until_s),
    }
    if found["hw logs -f"].keys() != found["the live view"].keys():
        raise RuntimeError("a line was seen in one view and not in the other")
    return {**{who: list(delays.values()) for who, delays in found.items()}, "cpu": share}


def _ranks(reader: Reader) -> set[bytes]:
    return {rank for _, data in list(reader.pieces) for rank, _, _ in BEAT.findall(data)}


def _seen(reader: Reader, start_s: float, until_s: float) -> dict[tuple[bytes, bytes], float]:
    """When each line was first seen, in ms after it was printed. Bytes are joined: a read may end
    within a line.
    """
    found: dict[tuple[bytes, bytes], float] = {}
    rest = b""
    for when_s, data in reader.pieces:
        for rank, number, printed in BEAT.findall(rest + data):
            printed_s = int(printed) / 1e9
            if start_s <= printed_s < until_s:
                found.setdefault((rank, number), 1000 * (when_s - printed_s))
        rest = data[-64:]
    return found


def _at_rest(context: Context, home: Home, watch_s: float) -> float:
    """The live view of a job that sleeps: its clock goes on and its usage is sampled, nothing else
    happens.
    """
    job = home.hw_json("-n", str(RANKS), "submit", "sleep", "600")["id"]
    with on_terminal([HW, "watch", job], home.env, home.folder) as terminal:
        wait_until(lambda: bool(terminal.pieces), 20, "the live view shows nothing")
        time.sleep(SETTLE_S)
        cpu_s, start_s = cpu_s_of(terminal.pid), time.monotonic()
        time.sleep(watch_s)
        share = 100 * (cpu_s_of(terminal.pid) - cpu_s) / (time.monotonic() - start_s)
    home.hw("abort", job)
    return share
