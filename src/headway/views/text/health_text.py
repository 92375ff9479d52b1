"""What is wrong with a job that runs, in words: for `hw why`, and in short beside its state in lists.
Called by views.
"""

from collections.abc import Iterator
from datetime import datetime

from headway.model.json_types import JsonObject
from headway.views.text import format as fmt
from headway.views.text.terminal import DIM, Output

SILENT_SHOWN_S = 30.0  # a shorter silence is not worth a line
HANGS = ("hang", "collective_stall", "collective_divergence", "dataloader_hang")


def health_words(job: JsonObject, now: datetime) -> str:
    """`hung for 14 min: rank 5 …`; empty where nothing was found."""
    found = job.get("health")
    if not found or job.get("state") != "running":
        return ""
    if found["kind"] == "hang":
        age = fmt.duration(fmt.age_s(found["since"], now))
        return f"hung for {age}: {found['text']}"
    return f"slow: {found['text']}"


def finding_lines(
    job_id: str, one: JsonObject, signs: JsonObject | None, now: datetime, out: Output
) -> Iterator[str]:
    """A finding of a job that runs: the verdict, the evidence, and what to type next."""
    kind = " · ".join(str(word) for word in (one["class"], one["cause"]) if word)
    text = out.safe(one["text"] or "")
    if one["cause"] in HANGS:
        age = fmt.duration(fmt.age_s(one["since"], now))
        yield f"{out.safe(job_id)} is hung for {age}: {text}   {out.style(kind, DIM)}"
        if signs:
            yield f"  evidence  {sign_words(signs, now)}"
    else:
        yield f"{out.safe(job_id)} is slow: {text}   {out.style(kind, DIM)}"
    first = one["cause"] not in HANGS
    for line in one["evidence"]:
        yield f"  {'evidence' if first else '':<9} {out.safe(line['text'])}"
        first = False
    if one["advice"]:
        yield f"  next      {out.safe(str(one['advice']))}"


def sign_words(signs: JsonObject, now: datetime) -> str:
    """Since when there was no output and no step, and what the CPU does."""
    usual = f" (usually every {_interval(signs['interval_s'])})" if signs["interval_s"] else ""
    parts = []
    if signs["output_at"]:
        parts.append(
            f"nothing printed, logged or counted since {fmt.local_time(signs['output_at'], now)}{usual}"
        )
    else:
        parts.append(f"no output for {fmt.duration(signs['silent_s'])}")
    if signs["step_at"]:
        parts.append(f"last step {fmt.local_time(signs['step_at'], now)}")
    else:
        parts.append("no step so far")
    if signs["cpu_percent"] is not None:
        parts.append(f"CPU {signs['cpu_percent']:.0f} %")
    return "; ".join(parts)


def _interval(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else fmt.duration(seconds)
