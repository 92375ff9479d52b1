"""What is known of a job that runs, for `hw why`: findings that hold, and since when it gave no
sign. Called by `api/why.py`.
"""

from sqlite3 import Connection
from typing import TYPE_CHECKING

from headway.diagnose import hang
from headway.model.job import Job
from headway.model.json_types import JsonObject
from headway.server.health.slow_watch import make_finding
from headway.store import health_rows, live_read
from headway.store.jsonform import iso

if TYPE_CHECKING:
    from headway.server.app import Services

LOOKS_S_MAX = 3.0
LOOKS, LOOK_PAUSE_S = 25, 0.05  # at where the ranks stand, when somebody waits for the answer


async def running(services: "Services", job: Job) -> JsonObject:
    """`findings` as the contract has them, and `signs`: when it last printed and stepped."""
    found, used = await services.query(_read, job)
    findings = [_as_contract(one) for one in found if one["until"] is None]
    if not any(one["cause"] in hang.CAUSES for one in findings) and job.attempts:
        told = {one["cause"] for one in findings}
        slow = await services.slows.judge(job, 0)
        if services.slows.straggler(job.pk) is None:
            lagging = await services.slows.look_at_ranks(job, LOOKS, LOOK_PAUSE_S, LOOKS_S_MAX)
            slow = [lagging, *slow] if lagging else slow
        more = [make_finding(job, one) for one in slow if one.cause not in told]
        number, since = job.attempts[-1].number, iso(job.started_ns)
        findings += [one | {"attempt": number, "since": since} for one in more]
    return {"findings": findings, "signs": _signs(services, job, used)}


def _read(c: Connection, job: Job) -> tuple[list[JsonObject], JsonObject | None]:
    return health_rows.of_job(c, job.pk), live_read.usage_last(c, [job.pk]).get(job.pk)


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
