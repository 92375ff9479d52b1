"""Numbers, times and states as people read them. Pure functions, called by every view."""

import math
import re
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Any, Final

from headway.model.json_types import JsonObject

# One mark per state; each is also told in words, so nothing rests on the mark or its colour.
STATE_MARKS: Final = {
    "waiting": "…", "running": "●", "stopping": "●", "succeeded": "✓", "failed": "✗", "stopped": "○",
    "held": "●", "unknown": "?",
}  # fmt: skip
STATE_COLOURS: Final = {
    "waiting": "33", "running": "36", "stopping": "33", "succeeded": "32", "failed": "31", "stopped": "33",
    "held": "31", "unknown": "35",
}  # fmt: skip
_CONTRACT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.0-9]*Z\Z")
ENDED: Final = ("succeeded", "failed", "stopped")
_SIGNALS: Final = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
    9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM",
    24: "SIGXCPU", 25: "SIGXFSZ", 31: "SIGSYS",
}  # fmt: skip


def place(job: JsonObject) -> str:
    """Where it runs: the cluster, and of another machine's job on a monitor that machine too."""
    cluster = str(job.get("cluster") or "")
    return f"{cluster} on {job.get('host') or job['guest_of']}" if job.get("guest_of") else cluster


def nodes(names: list[str]) -> str:
    """`node[1-2,7]`, as schedulers write it; names without a number stand as they are."""
    groups: dict[str, list[str]] = {}
    for name in names:
        stem = name.rstrip("0123456789")
        groups.setdefault(stem, []).append(name[len(stem) :])
    return ",".join(f"{stem}{_bracketed(numbers)}" for stem, numbers in groups.items())


def _bracketed(numbers: list[str]) -> str:
    if len(numbers) == 1:
        return numbers[0]
    spans: list[list[str]] = []
    for number in sorted(numbers, key=lambda one: (len(one), one)):
        last = spans[-1][-1] if spans else ""
        if last and len(last) == len(number) < 10 and int(number) == int(last) + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    return f"[{','.join(span[0] if len(span) == 1 else f'{span[0]}-{span[-1]}' for span in spans)}]"


def suffix(job_id: str) -> str:
    """The part of an id that a person types."""
    return job_id.rsplit("-", 1)[-1]


def is_over(job: JsonObject) -> bool:
    """Whether nothing more will come of it. One whose end nobody saw stays `unknown`, and is over
    all the same.
    """
    return str(job["state"]) in ENDED or bool(job.get("ended_at"))


def plural(count: int, noun: str) -> str:
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}es" if noun.endswith("s") else f"{count} {noun}s"


def duration(seconds: float | None) -> str:
    """`40 ms`, `1.8 s`, `12 s`, `2 min 04 s`, `1 h 12 min`, `3 d 4 h`."""
    if seconds is None or not math.isfinite(seconds):
        return "—"
    seconds = max(seconds, 0.0)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def clock(seconds: float | None) -> str:
    """For columns: `0:41`, `1:02:33`, `3d 04:05`."""
    if seconds is None or not math.isfinite(seconds):
        return "—"
    whole = max(round(seconds), 0)  # as `duration` does: one number everywhere
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    if whole < 86_400:
        return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
    return f"{whole // 86_400}d {whole % 86_400 // 3600:02d}:{whole % 3600 // 60:02d}"


def size(count: float | None) -> str:
    """`812 B`, `1.5 KiB`, `20.0 GiB`."""
    if count is None:
        return "—"
    if count < 1024:
        return f"{int(count)} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        count /= 1024
        if count < 1024 or unit == "TiB":
            break
    return f"{count:.1f} {unit}"


def carried(progress: Any) -> str:
    """`fetching folder data: 3.1 GiB of 10.0 GiB`, of the trackers of a job; nothing when no folder
    is on its way.
    """
    for tracker in progress or []:
        if tracker.get("source") == "folder" and tracker.get("state") == "running":
            return carried_words(tracker)
    return ""


def carried_words(tracker: JsonObject) -> str:
    words = " ".join(str(word) for word in tracker.get("msg") or [])
    total = tracker.get("total")
    return f"{words}: {size(tracker.get('completed'))} of {size(total)}" if total else words


def number(value: object) -> str:
    """A metric's value. JSON cannot hold NaN and infinities: they come as strings and are shown
    short.
    """
    if value is None:
        return "—"
    if isinstance(value, str):
        return {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}.get(value, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e9:
        return str(int(value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def signal_name(number: int | None) -> str:
    return _SIGNALS.get(number or 0, f"signal {number}")


def exit_words(exit_code: int | None, signal: int | None) -> str:
    """`exit code 3`, `killed by signal 9 (SIGKILL)`, `exit code not known`."""
    if signal is not None:
        name = _SIGNALS.get(signal)
        return f"killed by signal {signal}" + (f" ({name})" if name else "")
    return "exit code not known" if exit_code is None else f"exit code {exit_code}"


def moment(text: str | None) -> datetime | None:
    """A time of the contract: ISO 8601 in UTC."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def local_time(text: str | None, now: datetime, zone: tzinfo | None = None) -> str:
    """`12:04:31` today, `2026-11-14 12:04:31` otherwise, in the reader's own time zone."""
    if not text or not _CONTRACT.match(text):
        return _local(text or "", now, zone)
    minute = _local(f"{text[:16]}:00Z", now, zone)
    return minute if minute == "—" else minute[:-2] + text[17:19]


def local_times(texts: list[str], now: datetime) -> list[str]:
    """As `local_time`, of a long list: each minute is looked at once."""
    minutes = {
        minute: local_time(f"{minute}:00Z", now)[:-2] for minute in {text[:16] for text in texts}
    }
    if not all(minutes.values()) or not all(map(_CONTRACT.match, texts)):
        return [local_time(text, now) for text in texts]
    return [minutes[text[:16]] + text[17:19] for text in texts]


@lru_cache(maxsize=4096)  # a list of ten thousand jobs has far fewer minutes
def _local(text: str, now: datetime, zone: tzinfo | None) -> str:
    found = moment(text)
    if found is None:
        return "—"
    there = found.astimezone(zone)
    same_day = there.date() == now.astimezone(zone).date()
    return there.strftime("%H:%M:%S") if same_day else there.strftime("%Y-%m-%d %H:%M:%S")


def age_s(text: str | None, now: datetime) -> float | None:
    """Seconds from that time to `now`; never negative, whatever the clocks do."""
    found = moment(text)
    return None if found is None else max((now - found).total_seconds(), 0.0)


def ranks(numbers: list[int]) -> str:
    """`ranks 0, 1, 3` or `ranks 0–62`; `rank 3` for one."""
    found = sorted(set(numbers))
    if len(found) == 1:
        return f"rank {found[0]}"
    spans: list[str] = []
    start = last = found[0]
    for rank in [*found[1:], None]:
        if rank is not None and rank == last + 1:
            last = rank
            continue
        if start == last:
            spans.append(str(start))
        else:
            spans.append(f"{start}, {last}" if last == start + 1 else f"{start}–{last}")
        if rank is not None:
            start = last = rank
    return "ranks " + ", ".join(spans)


def shell_words(words: list[str]) -> str:
    """A command as a person would type it."""
    import shlex

    return shlex.join(words)


def parameters(job: JsonObject) -> str:
    """`lr=0.1 wd=0.0`: what tells the jobs of a sweep apart."""
    return " ".join(f"{name}={value}" for name, value in (job.get("parameters") or {}).items())
