"""What people are told of a job, and in which words (capability 63). Pure: no clock, no I/O. Called
by `notifier.py`.

A job's end is told once for each attempt, whatever it is called afterwards; a start only when
somebody has waited for it; a silence once, until the job has given a sign again.
"""

import json
from dataclasses import dataclass, replace
from typing import Any

from headway.model.job import Attempt, Job, State
from headway.model.json_types import JsonMapping, JsonObject
from headway.model.limits import NOTICE_TEXT_CHARS_MAX
from headway.store.jsonform import iso
from headway.store.notice_queue import Change, Notice
from headway.wire.redact import mask_text

_FAILED = frozenset({State.FAILED, State.HELD})
_ENDED = frozenset({State.SUCCEEDED, State.STOPPED})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person asked to be told; the settings `notify.…`."""

    on: frozenset[str]
    stall_s: float
    waited_s: float


def of_change(change: Change, job: Job, wanted: Wanted) -> Notice | None:
    """What to tell of a change of state; None: nothing."""
    kind = _kind(change, job, wanted)
    if kind is None or kind not in wanted.on:
        return None
    # a job that was held and then failed has ended once
    what = "started" if kind == "started" else "end"
    return _notice(
        job, kind, f"{job.uuid}:{change.attempt}:{what}", change.time_ns, waited_s=_waited_s(change)
    )


def of_alert(change: Change, job: Job) -> Notice:
    """What the program itself asked to tell: it has decided that, so no setting is asked."""
    said = json.loads(change.new)
    words = ": ".join(word for word in (said["title"], said["text"]) if word)
    found = _notice(
        job, "alert", f"{job.uuid}:{change.attempt}:alert:{change.time_ns}", change.time_ns
    )
    return replace(found, facts={**found.facts, "text": safe(f"{job.id} says: {words}")})


def _kind(change: Change, job: Job, wanted: Wanted) -> str | None:
    state = State(change.new)
    if state in _FAILED or (state is State.UNKNOWN and job.ended_ns is not None):
        return "failed"
    if state in _ENDED:
        return "ended"
    waited = change.old == State.WAITING and _waited_s(change) >= wanted.waited_s
    return "started" if state is State.RUNNING and waited and not job.spec.attached else None


def _waited_s(change: Change) -> float:
    return max(0.0, (change.time_ns - change.since_ns) / 1e9)


def of_silence(job: Job, silent_s: float, sign: int, now_ns: int, wanted: Wanted) -> Notice | None:
    """What to tell of a job that runs and gives no sign. `sign` changes with each one, so a silence
    has one key.
    """
    if not wanted.stall_s or silent_s < wanted.stall_s or "stalled" not in wanted.on:
        return None
    number = job.attempts[-1].number if job.attempts else 0
    return _notice(job, "stalled", f"{job.uuid}:{number}:stalled:{sign}", now_ns, silent_s=silent_s)


def of_hang(
    job: Job, finding: JsonMapping, since_ns: int, now_ns: int, on: frozenset[str]
) -> Notice | None:
    """What to tell of a job that hangs, once for each hang."""
    if "hung" not in on or job.spec.on_hang == "stacks":
        return None
    number = job.attempts[-1].number if job.attempts else 0
    silent_s = max(0.0, (now_ns - since_ns) / 1e9)
    made = _notice(job, "hung", f"{job.uuid}:{number}:hung:{since_ns}", now_ns, silent_s=silent_s)
    then = {"stop": "; it is being stopped", "restart": "; it is being restarted"}
    text = (
        f"{job.id} is hung for {words(silent_s)}: {finding['text']}{then.get(job.spec.on_hang, '')}"
    )
    made.facts.update(text=safe(text), cause=finding["cause"])
    return made


def of_slow(job: Job, finding: JsonMapping, now_ns: int, on: frozenset[str]) -> Notice | None:
    """What to tell of a job that is slow, once for each cause."""
    if "slow" not in on:
        return None
    number = job.attempts[-1].number if job.attempts else 0
    made = _notice(job, "slow", f"{job.uuid}:{number}:slow:{finding['cause']}", now_ns)
    made.facts.update(text=safe(f"{job.id} is slow: {finding['text']}"), cause=finding["cause"])
    return made


def _notice(
    job: Job, kind: str, key: str, now_ns: int, *, waited_s: float = 0.0, silent_s: float = 0.0
) -> Notice:
    attempt = job.attempts[-1] if job.attempts else None
    cause = attempt.cause if attempt is not None else None
    ended_ns = job.ended_ns or now_ns
    elapsed_s = max(0.0, (ended_ns - job.started_ns) / 1e9) if job.started_ns is not None else None
    facts: JsonObject = {
        "notice": key,
        "kind": kind,
        "text": _text(job, kind, elapsed_s, waited_s, silent_s),
        "id": job.id,
        "uuid": job.uuid,
        "name": job.spec.name,
        "experiment": job.spec.experiment,
        "cluster": job.spec.cluster,
        "state": str(job.state),
        "attempt": attempt.number if attempt is not None else None,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "cause": cause.get("cause") if cause else None,
        "elapsed_s": _rounded(elapsed_s),
        "waited_s": _rounded(waited_s) if kind == "started" else None,
        "silent_s": _rounded(silent_s) if kind in ("stalled", "hung") else None,
        "command": " ".join(job.spec.command),
        "user": job.spec.user,
        "host": job.spec.host,
        "time": iso(now_ns),
    }
    return Notice(key, job.pk, kind, {name: safe(value) for name, value in facts.items()})


def safe(value: object) -> Any:
    """A text of a job on its way out: secrets masked, printable, of bounded length."""
    if not isinstance(value, str):
        return value
    printable = "".join(
        char if char.isprintable() else " "
        for char in mask_text(value[: 4 * NOTICE_TEXT_CHARS_MAX])
    )
    return (
        printable
        if len(printable) <= NOTICE_TEXT_CHARS_MAX
        else printable[: NOTICE_TEXT_CHARS_MAX - 1] + "…"
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


# -- words


def _text(job: Job, kind: str, elapsed_s: float | None, waited_s: float, silent_s: float) -> str:
    if kind == "started":
        return f"{job.id} has started after waiting {words(waited_s)}"
    if kind == "stalled":
        heard = " and is not heard of" if job.state is State.UNKNOWN else ""
        return f"{job.id} has printed, logged and counted nothing for {words(silent_s)}{heard}"
    after = f" after {words(elapsed_s)}" if elapsed_s is not None else ""
    said = {
        State.HELD: "failed, and is held for you",
        State.UNKNOWN: "ended in a way that nobody knows",
    }
    return f"{job.id} {said.get(job.state, str(job.state).replace('stopped', 'was stopped'))}{after}{_why(job)}"


def _why(job: Job) -> str:
    attempt: Attempt | None = job.attempts[-1] if job.attempts else None
    if job.state is State.SUCCEEDED or attempt is None or not attempt.cause:
        return ""
    text = attempt.cause.get("text")
    return f": {text}" if isinstance(text, str) and text else ""


def words(seconds: float) -> str:
    """A duration as a person says it: `42 s`, `12 min`, `3 h 05 min`, `2 d 4 h`."""
    whole = round(seconds)
    if whole < 120:
        return f"{seconds:.1f} s" if whole < 10 else f"{whole} s"
    minutes = whole // 60
    if minutes < 120:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"
