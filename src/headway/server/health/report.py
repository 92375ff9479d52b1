"""What is known of a job that runs, for `hw why`: findings that hold, and since when it gave no
sign. Called by `api/why.py`.
"""

import asyncio
import time
from sqlite3 import Connection
from typing import TYPE_CHECKING

from headway.diagnose import hang
from headway.diagnose import slow as slowness
from headway.model.job import Job
from headway.model.json_types import JsonObject
from headway.store import health_rows, live_read
from headway.store.jsonform import iso

if TYPE_CHECKING:
    from headway.server.app import Services

USAGE_SPAN_S = 120.0  # of samples that slowness is told from
LOOKS, LOOK_PAUSE_S = 15, 0.05  # at where the ranks stand, for stragglers
QUIET_S = 10.0  # a job that is silent for longer has other troubles


async def running(services: "Services", job: Job) -> JsonObject:
    """`findings` as the contract has them, and `signs`: when it last printed and stepped."""
    found, used, samples = await services.query(_read, job)
    findings = [_as_contract(one) for one in found if one["until"] is None]
    if not findings:
        slow = await asyncio.to_thread(slowness.judge, job, samples)
        lagging = await _straggler(services, job)
        findings = [_as_finding(job, one) for one in ([lagging] if lagging else []) + slow]
    return {"findings": findings, "signs": _signs(services, job, used)}


async def _straggler(services: "Services", job: Job) -> slowness.Slow | None:
    """A few looks at where the ranks stand, where several work together and give signs of life."""
    pause = services.hangs.silence(job.pk)
    alone = job.spec.processes < 2 or job.spec.guest_of is not None
    if alone or pause is None or not pause.stepped or pause.silent_s > QUIET_S:
        return None
    begun_s = time.monotonic()
    looks: list[dict[int, str | None]] = []
    for _ in range(LOOKS):
        _, facts = await services.stacks.collect(job)
        looks.append({rank: one.kind for rank, one in hang.ranks_of(facts).items()})
        await asyncio.sleep(LOOK_PAUSE_S)
    after = services.hangs.silence(job.pk)
    moved_s = max(time.monotonic() - begun_s, 3 * (pause.interval_s or 0.0))
    if after is None or after.silent_s > moved_s:
        return None  # no step was made meanwhile: whoever does not wait may be stuck, not slow
    return slowness.straggler(looks)


def _as_finding(job: Job, one: slowness.Slow) -> JsonObject:
    return {
        "cause": one.cause,
        "class": one.cls,
        "confidence": one.confidence,
        "task": None,
        "rank": one.rank,
        "node": one.node,
        "attempt": job.attempts[-1].number,
        "text": one.text,
        "evidence": [{"stream": "usage", "offset": None, "text": text} for text in one.evidence],
        "advice": one.advice.replace("hw stacks ID", f"hw stacks {job.id.rpartition('-')[2]}")
        or None,
        "retry": None,
        "since": iso(job.started_ns),
    }


def _read(c: Connection, job: Job) -> tuple[list[JsonObject], JsonObject | None, list[JsonObject]]:
    since_ns = time.time_ns() - int(USAGE_SPAN_S * 1e9)
    samples, _ = live_read.usage(c, job.pk, 0, since_ns, 2**62)
    number = job.attempts[-1].number if job.attempts else 0
    samples = [sample for sample in samples if sample["attempt"] == number]
    return health_rows.of_job(c, job.pk), live_read.usage_last(c, [job.pk]).get(job.pk), samples


def _as_contract(finding: JsonObject) -> JsonObject:
    names = ("cause", "class", "confidence", "task", "rank", "node", "attempt", "text", "evidence")
    return {name: finding.get(name) for name in (*names, "advice", "retry", "since")}


def _signs(services: "Services", job: Job, used: JsonObject | None) -> JsonObject | None:
    pause = services.hangs.silence(job.pk)
    if pause is None:
        return None
    cpu = (used or {}).get("cpu_percent")
    return {
        "silent_s": round(pause.silent_s, 3),
        "output_at": iso(pause.last_sign_ns),
        "step_at": iso(pause.last_step_ns),
        "interval_s": pause.interval_s,
        "limit_s": pause.limit_s(),
        "cpu_percent": None if cpu is None else round(cpu, 1),
        "moving": services.hangs.moving(job.pk),
    }
