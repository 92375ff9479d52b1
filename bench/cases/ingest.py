"""Points per second into the store, acknowledged only when durable, with the senders on the same
cores.

Ready batches: four senders post frames made beforehand, each for a task of its own, over the unix
socket. End to end: four processes of one job call `hw.log` in a loop; the clock runs from the first
call until the last point is stored.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.context import Context
from bench.home import Home
from bench.measure import interleave, wait_until
from bench.peer import BENCH
from bench.result import HEADWAY, Measure, Result

SENDERS = 4
PART_BYTES = 1 << 20
POINTS = {2: 12_000_000, 8: 16_000_000, 100: 24_000_000}  # of all senders in one round
POINTS_END_TO_END = {2: 1_000_000, 20: 6_000_000}
JUDGED_VALUES_END_TO_END = 20
DRAIN_TIMEOUT_S = 120


def run(context: Context) -> Iterator[Result]:
    for values, points in POINTS.items():
        yield _ready(context, values, context.size(points, points // 10))
    for values, points in POINTS_END_TO_END.items():
        yield _end_to_end(context, values, context.size(points, points // 10))


class Sender:
    """One sending process, spoken to over its stdin and stdout."""

    def __init__(self, home: Home, rows: int, values: int) -> None:
        argv = [
            sys.executable,
            "-m",
            "bench.sender",
            str(home.socket),
            str(rows),
            str(values),
            str(PART_BYTES),
        ]
        self.child = subprocess.Popen(
            argv,
            env=home.env,
            cwd=BENCH.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, line: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()

    def hear(self) -> str:
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError("a sender has ended")
        return line.strip()

    def close(self) -> None:
        self.child.kill()
        self.child.wait()


def _ready(context: Context, values: int, points: int) -> Result:
    rows = points // values // SENDERS
    rates = []
    with context.home() as home, ExitStack() as stack:
        senders = [Sender(home, rows, values) for _ in range(SENDERS)]
        for sender in senders:
            stack.callback(sender.close)
        for sender in senders:
            sender.hear()
        for _ in range(context.rounds):
            took_s = _round(home, senders)
            rates.append(rows * values * SENDERS / took_s / 1e6)
        stored, sent = home.points(), rows * values * SENDERS * context.rounds
        if stored != sent:
            raise RuntimeError(f"{stored:,} points stored of {sent:,} acknowledged")
    result = Result(
        f"ingest of ready batches, {values} values per record", "M points/s", lower_is_better=False
    )
    result.measures.append(
        Measure(HEADWAY, rates, f"{SENDERS} senders, batches of {PART_BYTES >> 20} MiB")
    )
    result.at_least("at least 5 M points/s", result.measures[0].median, 5, "M points/s")
    return result


def _round(home: Home, senders: list[Sender]) -> float:
    """All senders start together; seconds until the last has its last acknowledgement."""
    for sender in senders:
        task = home.register("ingest")
        sender.tell(json.dumps([[task.key.uuid, task.key.attempt, task.key.task], task.token]))
    for sender in senders:
        sender.hear()
    start_s = time.perf_counter()
    for sender in senders:
        sender.tell("go")
    for sender in senders:
        sender.hear()
    return time.perf_counter() - start_s


def _end_to_end(context: Context, values: int, points: int) -> Result:
    calls = points // values // SENDERS
    with context.home() as home:
        rates = interleave(
            context.rounds, {HEADWAY: lambda n: _job(context, home, n, calls, values)}
        )[HEADWAY]
    result = Result(
        f"hw.log to stored, {values} values per call, four processes",
        "M points/s",
        lower_is_better=False,
    )
    result.measures.append(Measure(HEADWAY, rates))
    if values == JUDGED_VALUES_END_TO_END:
        result.at_least("at least 1 M points/s", result.measures[0].median, 1, "M points/s")
    return result


def _job(context: Context, home: Home, number: int, calls: int, values: int) -> float:
    folder, before, wanted = context.folder("e2e"), home.points(), calls * values * SENDERS
    script = str(BENCH / "jobs" / "loop.py")
    home.hw(
        "-n", str(SENDERS), "submit", sys.executable, script, str(calls), str(values), str(folder)
    )
    wait_until(
        lambda: home.points() - before >= wanted,
        DRAIN_TIMEOUT_S,
        "not every point is stored",
        pause_s=0.01,
    )
    end_s = time.time()
    starts = [float(Path(folder, str(rank)).read_text().split()[0]) for rank in range(SENDERS)]
    return wanted / (end_s - min(starts)) / 1e6
