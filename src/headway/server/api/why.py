"""`/api/jobs/{ref}/why`: why a job waits, or why its attempts ended, as `hw why --json` tells it."""

import time
from dataclasses import asdict

from headway.engines.protocol import Waiting
from headway.model.job import Attempt, Job, State
from headway.model.json_types import JsonObject
from headway.server import contract
from headway.server.app import Route
from headway.server.health import report
from headway.server.http.auth import Role
from headway.server.http.request import Call, Reply, reply_json
from headway.store.jsonform import iso


async def why(call: Call) -> Reply:
    """Why it waits, or what its attempts ended of."""
    pk = await call.services.find(call)
    job = await call.services.control.load(pk)
    waiting = None
    if job.state is State.WAITING and job.ended_ns is None:
        waiting = await call.services.control.explain(job)
    now: JsonObject = {"findings": [], "signs": None}
    if job.state is State.RUNNING:
        now = await report.running(call.services, job)
    found = [*now["findings"], *_findings(job)]
    if waiting is not None:
        found.insert(0, _waiting_finding(job, waiting))
    verdict = _verdict(job)
    if now["findings"]:
        verdict = now["findings"][0]["text"]
    return reply_json(
        {
            "id": job.id, "state": str(job.state), "since_ns": job.state_since_ns, "cluster": job.spec.cluster,
            "engine": job.spec.definition.get("engine", job.spec.cluster),
            "since_s": max(0.0, (time.time_ns() - job.state_since_ns) / 1e9),
            "verdict": waiting.reason if waiting else verdict, "findings": found, "signs": now["signs"],
            "hypotheses": _hypotheses(job), "seen_before": _seen_before(job),
            "waiting": None if waiting is None else asdict(waiting), "needs": _needs(job),
        }
    )  # fmt: skip


def _waiting_finding(job: Job, waiting: Waiting) -> JsonObject:
    """Why it waits, in the form of every other finding, whatever engine says it."""
    said = [waiting.needs, waiting.fit, *waiting.limits, waiting.start]
    if waiting.ahead:
        said.append(f"{len(waiting.ahead)} ahead: {', '.join(waiting.ahead[:5])}")
    return {
        "cause": f"waits_{waiting.cause}",
        "class": "user" if waiting.cause in ("never", "held", "dependency") else "resource",
        "confidence": 1.0,
        "task": None,
        "rank": None,
        "node": None,
        "attempt": job.attempts[-1].number if job.attempts else None,
        "text": waiting.reason,
        "evidence": [{"stream": "queue", "offset": None, "text": text} for text in said if text],
        "advice": " ".join(waiting.sooner[0].split()) if waiting.sooner else None,
        "retry": None,
        "since": iso(job.state_since_ns),
    }


def _verdict(job: Job) -> str | None:
    """The cause of an end that no attempt had, else of the last attempt that has one."""
    told = [
        cause["text"]
        for cause in (job.cause, *(one.cause for one in reversed(job.attempts)))
        if cause
    ]
    return told[0] if told else None


def _findings(job: Job) -> list[JsonObject]:
    """One for each attempt that did not end well, the last one first."""
    found: list[JsonObject] = []
    for attempt in reversed(job.attempts):
        cause = attempt.cause
        if cause is None:
            continue
        kept = attempt.findings or {}
        read = kept.get("findings") or [_last_words(kept)]
        plain: JsonObject = {
            "confidence": 1.0,
            "task": None,
            "node": None,
            "evidence": [],
            "advice": None,
        }
        found.append(
            {
                **plain,
                **read[0],
                "cause": cause.get("cause"),
                "class": cause.get("class"),
                "text": cause.get("text"),
                "rank": cause.get("rank"),
                "attempt": attempt.number,
                "retry": _decision(attempt) or cause.get("no_retry") or read[0].get("retry"),
            }
        )
    return found


def _last_words(kept: JsonObject) -> JsonObject:
    """Where nothing better is known: the last line of its errors, to be looked at."""
    words = kept.get("last_words")
    if not words:
        return {}
    return {"evidence": [{"stream": "stderr", "offset": None, "line": None, "text": words}]}


def _decision(attempt: Attempt) -> str | None:
    """What was decided after it: another attempt, and by which rule."""
    retry = attempt.retry or {}
    if retry.get("do") in (None, "no"):
        return None
    wait = f", after {retry['wait_s']:.0f} s" if retry.get("wait_s") else ""
    return f"{retry.get('text')}{wait}"


def _hypotheses(job: Job) -> list[JsonObject]:
    """What else the last failure could be."""
    last = next((one.findings for one in reversed(job.attempts) if one.findings), None)
    return list((last or {}).get("hypotheses") or [])


def _seen_before(job: Job) -> JsonObject | None:
    """Other jobs whose last failure looked the same."""
    last = next((one.findings for one in reversed(job.attempts) if one.findings), None)
    return (last or {}).get("seen_before") or None


def _needs(job: Job) -> JsonObject:
    spec = job.spec
    names = ("processes", "gpus", "nodes", "cpus", "memory_bytes", "max_duration_s", "priority")
    return {name: getattr(spec, name) for name in names}


ROUTES = [Route("GET", "/api/jobs/{ref}/why", Role.READ, why, answer=contract.Why)]
