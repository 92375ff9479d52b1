"""A process that prints 1 GB as fast as it can: into a plain file, and as a job whose output is
shipped and stored.

Compared are the process's own CPU and wall time, interleaved. Every stored byte is compared by
length and hash. A control prints into a plain file while another core only spins: what that costs
is the machine's, not Headway's.
"""

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.context import Context
from bench.home import HW, Home
from bench.jobs import flood
from bench.measure import interleave, wait_until
from bench.peer import BENCH
from bench.result import HEADWAY, Measure, Result

BYTES = 1_000_000_000
DRAIN_TIMEOUT_S = 300
PLAIN, BESIDE = "plain file", "plain file beside a busy core"
PROGRAM = str(BENCH / "jobs" / "flood.py")


def run(context: Context) -> Iterator[Result]:
    wanted = context.size(BYTES, BYTES // 10)
    yield from compare(context, wanted, "1 GB")


def compare(context: Context, wanted: int, what: str, *pace: str) -> Iterator[Result]:
    """Own CPU and wall time beside a plain file, and how long the rest took to arrive (last)."""
    drains: list[float] = []
    with context.home() as home:
        contenders: dict[str, Callable[[int], dict[str, Any]]] = {
            HEADWAY: lambda _: as_job(context, home, drains, wanted, *pace),
            PLAIN: lambda _: into_file(context, home, wanted, *pace),
            BESIDE: lambda _: _beside_a_busy_core(lambda: into_file(context, home, wanted, *pace)),
        }
        measured = interleave(context.rounds, contenders)
    for key, name in (("cpu_s", "own CPU time"), ("wall_s", "wall time")):
        result = Result(f"{name} of a process that prints {what}", "s")
        result.measures = [
            Measure(who, [sample[key] for sample in samples]) for who, samples in measured.items()
        ]
        ours, plain, beside = (measure.median for measure in result.measures)
        result.at_most(
            "at most 3 % more than into a plain file", 100 * (ours / plain - 1), 3, "% more"
        )
        result.notes.append(
            f"A busy loop on another core alone makes the plain file cost {100 * (beside / plain - 1):.1f} % more here."
        )
        yield result
    result = Result(
        f"backlog of {what} drained after the process has ended", "s", [Measure(HEADWAY, drains)]
    )
    result.at_most("in at most 30 s, every byte stored", max(drains), 30, "s")
    result.notes.append(
        "Length and SHA-256 of the stored output were compared with what was printed in every round."
    )
    yield result


def _beside_a_busy_core(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the machine itself takes from a process when any other core works: neither disk nor
    memory is touched.
    """
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            return measure()
        finally:
            busy.kill()


def into_file(context: Context, home: Home, wanted: int, *pace: str) -> dict[str, Any]:
    folder = context.folder("plain")
    with (folder / "stdout").open("wb") as output:
        argv = [sys.executable, PROGRAM, str(wanted), str(folder / "took.json"), *pace]
        subprocess.run(
            argv, stdout=output, stdin=subprocess.DEVNULL, env=home.env, cwd=folder, check=True
        )
    (folder / "stdout").unlink()
    return _took(folder)


def as_job(
    context: Context, home: Home, drains: list[float], wanted: int, *pace: str
) -> dict[str, Any]:
    """What the process measured of itself; `drains` gets the seconds until all of its output was
    stored.
    """
    folder = context.folder("flood")
    job = home.hw_json(
        "submit", sys.executable, PROGRAM, str(wanted), str(folder / "took.json"), *pace
    )
    wait_until(
        (folder / "took.json").exists, DRAIN_TIMEOUT_S, "the flood has not ended", pause_s=0.2
    )
    wait_until(lambda: bool((folder / "took.json").read_text()), 5, "the flood has not ended")
    took = _took(folder)
    wait_until(
        lambda: _stored(home, job["uuid"]) >= took["bytes"],
        DRAIN_TIMEOUT_S,
        "output is missing",
        pause_s=0.1,
    )
    drains.append(time.time() - took["ended"])
    _compare(home, job["id"], wanted, took["bytes"])
    home.hw("delete", job["id"])
    home.hw("gc")
    return took


def _took(folder: Path) -> dict[str, Any]:
    took: dict[str, Any] = json.loads((folder / "took.json").read_text())
    return took


def _stored(home: Home, uuid: str) -> int:
    """Position of the job's stdout: every byte before it is stored."""
    rows = home.query(
        "SELECT s.position FROM streams s JOIN tasks t ON t.pk = s.task JOIN attempts a ON a.pk = t.attempt "
        "JOIN jobs j ON j.pk = a.job WHERE j.uuid = ? AND s.name = 'stdout-0'",
        uuid,
    )
    return int(rows[0][0]) if rows else 0


def _compare(home: Home, job: str, wanted: int, size: int) -> None:
    """Read everything back through `hw logs`, which gives raw bytes where one stream is selected."""
    digest, found = hashlib.sha256(), 0
    argv = [HW, "logs", job, "--stream", "stdout"]
    with subprocess.Popen(argv, env=home.env, cwd=home.folder, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        while data := child.stdout.read(1 << 20):
            digest.update(data)
            found += len(data)
    if found != size or digest.hexdigest() != flood.expected_hash(wanted):
        raise RuntimeError(f"{found:,} bytes stored of {size:,}, or not the ones that were printed")
