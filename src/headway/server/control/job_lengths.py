"""How long jobs take, for the forecast of when others start. Reads; called by `control.explain`."""

from collections.abc import Sequence
from sqlite3 import Connection
from statistics import median

from headway.model.job import Job
from headway.server.control.forecast import UNKNOWN, Length
from headway.settings.quantity import duration_text
from headway.store import forecast_rows, live_read

JOBS_MAX = 200  # of the queue; beyond that nothing is foretold


def lengths(c: Connection, jobs: Sequence[Job], now_ns: int) -> dict[int, Length]:
    """By pk, from the start of each job."""
    some = list(jobs)[:JOBS_MAX]
    bars = live_read.progress(c, [job.pk for job in some if job.started_ns is not None])
    past: dict[tuple[str, str | None], list[float]] = {}
    found: dict[int, Length] = {}
    for job in some:
        key = (job.spec.name, job.spec.experiment)
        if key not in past:
            past[key] = forecast_rows.durations(c, *key)
        found[job.pk] = _length(job, bars.get(job.pk, []), past[key], now_ns)
    return found


def _length(
    job: Job, bars: Sequence[live_read.Object], past: Sequence[float], now_ns: int
) -> Length:
    ran_s = 0.0 if job.started_ns is None else max(0.0, (now_ns - job.started_ns) / 1e9)
    left = [bar["eta_s"] for bar in bars if _tells_the_end(bar)]
    if left:
        return Length(ran_s + max(left), "by its progress bar")
    limit_s = job.spec.max_duration_s
    longer = [seconds for seconds in past if seconds > ran_s]
    if longer:
        usual_s = median(longer)
        jobs = "a job" if len(past) == 1 else "jobs"
        if not limit_s or usual_s < limit_s:
            return Length(usual_s, f"{jobs} of this name took {_rough(median(past))} here")
    if limit_s:
        return Length(limit_s, "at the latest, by its time limit")
    return UNKNOWN


def _tells_the_end(bar: live_read.Object) -> bool:
    """A bar of the whole job that runs and moves."""
    is_whole = bar["state"] == "running" and not bar["inner"] and not bar["stalled_since"]
    return is_whole and bar["eta_s"] is not None and bar["total"] is not None


def _rough(seconds: float) -> str:
    if seconds < 120:
        return duration_text(max(1, round(seconds)))
    return duration_text(round(seconds / 60) * 60)
