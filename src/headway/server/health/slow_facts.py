"""What is stored of a job that runs, as the rules for slowness take it. Called by `slow_watch`, by
`report` and by the ledger; each function runs in a thread that reads.
"""

import itertools
import sqlite3
import time
from typing import Any

from headway.diagnose import ledger
from headway.diagnose.ledger import Used
from headway.diagnose.pace import Pace, differences, step_paces, whole_pace
from headway.diagnose.slow import Seen
from headway.model.job import Attempt, Job
from headway.model.json_types import JsonObject
from headway.model.limits import (
    SLOW_POINTS,
    SLOW_SIBLINGS_BACK,
    SLOW_SIBLINGS_MAX,
    SLOW_USAGE_EARLIER_S,
    SLOW_USAGE_S,
)
from headway.store import catalog, live_read, series

Usage = JsonObject


def read(c: sqlite3.Connection, job: Job, level: int) -> Seen:
    """`level`: of the samples; 0 is each, 1 is ten seconds, which is enough for a look unasked."""
    attempt = job.attempts[-1]
    now_ns = time.time_ns()
    since_ns = now_ns - int(SLOW_USAGE_S * 1e9)
    samples = _samples(c, job, attempt, level, since_ns, now_ns)
    before_ns = since_ns - int(SLOW_USAGE_EARLIER_S * 1e9)
    earlier = []
    if any(sample.get("gpus") for sample in samples):
        earlier = _samples(c, job, attempt, 1, before_ns, since_ns)
    begun_ns = attempt.started_ns or attempt.created_ns or now_ns
    ran_s = max(0.0, (now_ns - begun_ns) / 1e9)
    timings = [row for row in live_read.timings(c, job.pk) if row["attempt"] == attempt.number]
    timed = ledger.timed_parts(timings)
    saved_ns = _checkpoint_times(c, job, attempt)
    if "checkpoint" not in timed and saved_ns:
        timed["checkpoint"] = _checkpoint_share(c, job, attempt, saved_ns) * ran_s
    return Seen(
        samples=samples,
        earlier=earlier,
        pace=pace(c, job, now_ns),
        used=used(c, job) if job.spec.memory_bytes or job.spec.cpus else Used(),
        ran_s=ran_s,
        timed=timed,
        checkpoints=len(saved_ns),
    )


def _samples(
    c: sqlite3.Connection, job: Job, attempt: Attempt, level: int, since_ns: int, until_ns: int
) -> list[Usage]:
    found, _ = live_read.usage(c, job.pk, level, since_ns, until_ns)
    return [sample for sample in found if sample["attempt"] == attempt.number]


# -- checkpoints


def _checkpoint_times(c: sqlite3.Connection, job: Job, attempt: Attempt) -> list[int]:
    """Marks of the program that are named like a saved model; it may mark anything."""
    rows = c.execute(
        "SELECT time_ns, tags FROM checkpoints WHERE job = :job AND attempt = :attempt",
        {"job": job.pk, "attempt": attempt.number},
    )
    return sorted({int(row["time_ns"]) for row in rows if ledger.SAVES.search(row["tags"])})


def _checkpoint_share(
    c: sqlite3.Connection, job: Job, attempt: Attempt, saved_ns: list[int]
) -> float:
    """How much of the time goes into checkpoints that nobody times: pauses between two steps with a
    checkpoint in them, beyond what a step usually takes.
    """
    found = _longest_series(c, job.pk, attempt.number)
    if found is None:
        return 0.0
    times = [int(t) * 1000 for t in series.read_last(c, found, SLOW_POINTS).times_us]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    if len(gaps) < 4:
        return 0.0
    usual = sorted(gaps)[len(gaps) // 2]
    saving = 0
    place = 0
    for begin, gap in zip(times, gaps, strict=False):
        while place < len(saved_ns) and saved_ns[place] < begin:
            place += 1
        if place < len(saved_ns) and saved_ns[place] <= begin + gap:
            saving += max(0, gap - usual)
    return saving / max(1, times[-1] - times[0])


# -- pace


def pace(c: sqlite3.Connection, job: Job, now_ns: int) -> Pace:
    attempt = job.attempts[-1]
    times_s, steps = _steps(c, job.pk, attempt.number)
    now_s, past_s = step_paces(times_s, steps)
    found = Pace(now_s=now_s, past_s=past_s)
    if now_s is None:
        return found
    for other in _siblings(c, job):
        times_s, steps = _steps(c, other.pk, other.attempts[-1].number)
        other_s = whole_pace(times_s, steps)
        if other_s is None:
            continue
        found.sibling, found.sibling_s = other.id, other_s
        found.sibling_age_s = (now_ns - (other.started_ns or other.submitted_ns)) / 1e9
        found.same_command = other.spec.command == job.spec.command
        here, there = _means(c, job), _means(c, other)
        found.differences = differences(here, there)
        return found
    return found


def _longest_series(c: sqlite3.Connection, job: int, attempt: int) -> int | None:
    row = c.execute(
        """SELECT s.pk AS pk FROM series s JOIN latest l ON l.series = s.pk
           WHERE s.job = :job AND s.attempt = :attempt ORDER BY l.points DESC, s.pk LIMIT 1""",
        {"job": job, "attempt": attempt},
    ).fetchone()
    return None if row is None else int(row["pk"])


def _steps(c: sqlite3.Connection, job: int, attempt: int) -> tuple[list[float], list[float]]:
    """When steps were made, and their numbers."""
    found = _longest_series(c, job, attempt)
    if found is None:
        return [], []
    points = series.read_points(c, found, SLOW_POINTS)
    times_s = [float(t) / 1e6 for t in points.times_us]
    steps = [float(step) for step in points.steps]
    return times_s, steps


def _siblings(c: sqlite3.Connection, job: Job) -> list[Job]:
    """Like jobs before it, the newest first, those with the same command before others: of the same
    name, size and experiment.
    """
    rows = c.execute(
        """SELECT pk FROM jobs WHERE pk < :pk AND pk > :least AND name = :name AND deleted_ns IS NULL
             AND started_ns IS NOT NULL AND experiment IS :experiment ORDER BY pk DESC LIMIT :n""",
        {
            "pk": job.pk, "least": job.pk - SLOW_SIBLINGS_BACK, "name": job.spec.name,
            "experiment": job.spec.experiment, "n": SLOW_SIBLINGS_MAX,
        },
    ).fetchall()  # fmt: skip
    others = [catalog.load_job(c, row["pk"]) for row in rows]
    alike = [
        other
        for other in others
        if other.attempts
        and (other.spec.processes, other.spec.gpus) == (job.spec.processes, job.spec.gpus)
    ]
    return sorted(alike, key=lambda other: other.spec.command != job.spec.command)


# -- usage


def _means(c: sqlite3.Connection, job: Job) -> dict[str, float]:
    """What a job uses on average, by a name with its unit."""
    parts: dict[str, list[float]] = {}
    for sample in _coarsest(c, job):
        trees = [one for one in sample.get("processes") or () if one.get("pid") is None]
        parts.setdefault("CPU %", []).append(
            sum(number(one.get("cpu_percent"), 1) for one in trees)
        )
        read = sum(number(one.get("read_bps"), 1) for one in trees) / 1e6
        parts.setdefault("MB/s read", []).append(read)
        loads = [number(g.get("load_percent"), 1) for g in sample.get("gpus") or () if g.get("own")]
        if loads:
            parts.setdefault("GPU %", []).append(sum(loads) / len(loads))
        pressure = ((sample.get("node") or {}).get("psi") or {}).get("cpu")
        if pressure is not None:
            parts.setdefault("% of the time somebody waits for a core", []).append(
                number(pressure, 1)
            )
    return {name: sum(values) / len(values) for name, values in parts.items()}


def _coarsest(c: sqlite3.Connection, job: Job) -> list[Usage]:
    """Samples of a minute of the last attempt, or finer where there are none yet."""
    last = job.attempts[-1].number if job.attempts else 0
    for level in (2, 1, 0):
        samples, _ = live_read.usage(c, job.pk, level, 0, 2**62)
        found = [sample for sample in samples if sample["attempt"] == last]
        if found:
            return found
    return []


def used(c: sqlite3.Connection, job: Job) -> Used:
    """The most of all ranks at once."""
    memory: list[float] = []
    cores: list[float] = []
    gpus: list[float] = []
    for sample in _coarsest(c, job):
        trees = [one for one in sample.get("processes") or () if one.get("pid") is None]
        memory.append(sum(number(one.get("rss_bytes")) for one in trees))
        cores.append(sum(number(one.get("cpu_percent"), 1) for one in trees) / 100)
        gpus += [number(g.get("load_percent"), 1) for g in sample.get("gpus") or () if g.get("own")]
    return Used(
        memory_bytes=int(max(memory)) if memory else None,
        cores=max(cores) if cores else None,
        gpu_percent=sum(gpus) / len(gpus) if gpus else None,
    )


def number(value: Any, place: int = 2) -> float:
    """A number, or of [min, mean, max] the one at this place."""
    if isinstance(value, list) and len(value) == 3:
        value = value[place]
    return float(value) if isinstance(value, int | float) else 0.0
