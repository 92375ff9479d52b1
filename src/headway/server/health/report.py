"""What is known of a job that runs, for `hw why`: findings that hold, and since when it gave no
sign. Called by `api/why.py`.
"""

from sqlite3 import Connection
from typing import TYPE_CHECKING, Any

from headway.model.job import Job
from headway.store import health_rows, live_read
from headway.store.jsonform import iso

if TYPE_CHECKING:
    from headway.server.app import Services


async def running(services: "Services", job: Job) -> dict[str, Any]:
    """`findings` as the contract has them, and `signs`: when it last printed and stepped."""
    found, used = await services.query(_read, job.pk)
    current = [one for one in found if one["until"] is None]
    return {
        "findings": [_as_contract(one) for one in current],
        "signs": _signs(services, job, used),
    }


def _read(c: Connection, pk: int) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    return health_rows.of_job(c, pk), live_read.usage_last(c, [pk]).get(pk)


def _as_contract(finding: dict[str, Any]) -> dict[str, Any]:
    names = ("cause", "class", "confidence", "task", "rank", "node", "attempt", "text", "evidence")
    return {name: finding.get(name) for name in (*names, "advice", "retry", "since")}


def _signs(services: "Services", job: Job, used: dict[str, Any] | None) -> dict[str, Any] | None:
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
