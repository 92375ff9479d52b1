"""Arrays of jobs in the commands: how one is shown, stopped and waited for as one. Called by
`submit`, `query`, `ls`, `abort`, `resubmit` and `delete`.
"""

import time
from datetime import UTC, datetime
from typing import Final

from headway.model.errors import NotFoundError, RefusedError
from headway.model.json_types import JsonObject
from headway.views.api.source import Source, array_route, job_route, until_reached
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt
from headway.views.text import job_text
from headway.views.text.terminal import BOLD, DIM

_WAIT_S: Final = 1.0  # between two questions of --wait
_LABEL_CELLS: Final = 12
Array = JsonObject


def found(source: Source, ref: str) -> Array | None:
    """The array that `ref` means, or None."""
    try:
        array: Array = source.get(array_route(ref))
    except NotFoundError:
        return None
    return array


def counts(array: Array) -> str:
    """`12 running · 3 failed · 985 waiting`."""
    return " · ".join(f"{number} {state}" for state, number in array["states"].items())


def elapsed_s(array: Array, now: datetime) -> float | None:
    """From the first start to the last end, or until now."""
    started = fmt.moment(array.get("started_at"))
    if started is None:
        return None
    return ((fmt.moment(array.get("ended_at")) or now) - started).total_seconds()


def submitted(call: Call, source: Source, array: Array) -> int:
    if not call.as_json:
        tell_way_back(call, array["id"])
        call.terminal.say(f"  {fmt.plural(array['jobs'], 'job')}")
    if call.get("wait"):
        array = _attended(call, source, array)
        call.terminal.say(call.terminal.err.safe(f"hw: {array['id']}: {counts(array)}"))
    if call.as_json:
        call.terminal.put_json(array)
    return 0 if not call.get("wait") or set(array["states"]) == {"succeeded"} else 1


def _attended(call: Call, source: Source, array: Array) -> Array:
    """Until all its jobs are over: on a terminal with the list of `hw watch`. Leaving it leaves the
    jobs as they are, and says so.
    """
    from headway.views.cli import watch
    from headway.views.console.screen import is_possible

    try:
        if not call.as_json and is_possible(call.terminal):
            watch.show_array(call, source, str(array["uuid"]))
            array = source.get(array_route(array["id"]))
        else:
            array = _wait(source, array)
    except KeyboardInterrupt:
        _tell_left(call, array)
        raise
    if array["ended_at"] is None:
        _tell_left(call, array)
    return array


def _tell_left(call: Call, array: Array) -> None:
    short = fmt.suffix(array["id"])
    call.terminal.say(
        call.terminal.err.safe(
            f"hw: left {array['id']}; its jobs go on: hw watch {short} · hw abort {short}"
        )
    )


def _wait(source: Source, array: Array) -> Array:
    """Until all its jobs are over. A server that is gone meanwhile is waited for."""

    def lost(_: Exception) -> None:
        source.reconnect()

    route = array_route(array["id"])
    while array["ended_at"] is None:
        time.sleep(_WAIT_S)
        array = until_reached(lambda: source.get(route), lost)
    return array


def tell_way_back(call: Call, array_id: str) -> None:
    """The id alone is data; the commands to go on with are talk."""
    short, out, err = fmt.suffix(array_id), call.terminal.out, call.terminal.err
    call.terminal.put(out.style(array_id, BOLD) if out.is_tty else array_id)
    ways = " · ".join(
        f"hw {words} {err.safe(short)}"
        for words in ("q", "ls --array", "abort", "resubmit --failed")
    )
    call.terminal.say(f"  {err.style(ways, DIM)}")


def show(call: Call, array: Array, *, first: bool) -> None:
    if call.as_json:
        return
    out, now = call.terminal.out, datetime.now(UTC)
    facts = {
        "jobs": f"{array['jobs']}: {counts(array)}",
        "experiment": str(array["experiment"] or ""),
        "cluster": str(array["cluster"] or ""),
        "submitted": fmt.local_time(array["submitted_at"], now),
        "started": fmt.local_time(array["started_at"], now) if array["started_at"] else "",
        "ended": fmt.local_time(array["ended_at"], now) if array["ended_at"] else "",
        "elapsed": fmt.duration(elapsed_s(array, now)) if array["started_at"] else "",
        "parent": str(array["parent"] or ""),
    }
    lines = [] if first else [""]
    lines.append(out.style(out.safe(f"{array['id']}  an array, {array['state']}"), BOLD))
    lines += [
        job_text.fact(label, out.safe(text), _LABEL_CELLS) for label, text in facts.items() if text
    ]
    for number, job in enumerate(array["failed"]):
        text = f"{job['index']}  {job['id']}  {(job['cause'] or {}).get('text') or ''}"
        lines.append(
            job_text.fact("" if number else "failed", out.safe(text.rstrip()), _LABEL_CELLS)
        )
    short = fmt.suffix(array["id"])
    ways = [f"hw ls --array {short}"]
    if array["ended_at"] is None:
        ways.append(f"hw abort {short}")
    else:
        ways += [f"hw metrics {short}", f"hw compare {short}"]
    if array["failed"]:
        ways.append(f"hw resubmit --failed {short}")
    lines.append(job_text.fact("next", out.safe(" · ".join(ways)), _LABEL_CELLS))
    out.write("\n".join(lines) + "\n")


def abort(source: Source, job: Array) -> str:
    """Stop all of it; what came of it in words."""
    job |= source.post(array_route(job["id"], "abort"), {}, again=True)
    return f"{job['id']}  {fmt.plural(job['stopped'], 'job')} stopping · {counts(job)}"


def delete(source: Source, array: Array) -> str:
    """Forget all its jobs, which must be over; what came of it in words."""
    if array["ended_at"] is None:
        still = {
            **array,
            "states": {state: n for state, n in array["states"].items() if state not in fmt.ENDED},
        }
        raise RefusedError(
            f"{array['id']} still has jobs: {counts(still)}",
            f"to end them first: hw abort {array['id']}",
        )
    jobs = source.get("/api/jobs", [("array", array["id"])])
    for job in jobs:
        source.delete(job_route(job["id"]))
    return f"{array['id']}  {fmt.plural(len(jobs), 'job')} deleted"
