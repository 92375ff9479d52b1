"""Choosing jobs by state, cluster, experiment, age and pattern; asking before acting on them
(capability 8).

Called by `ls`, `abort`, `resubmit`, `release` and `delete`.
"""

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from headway.model.errors import HeadwayError, NotFoundError, UsageError
from headway.model.json_types import JsonObject
from headway.views.api.source import Source, job_route
from headway.views.cli.dispatch import Call, complain
from headway.views.text import format as fmt

KEYS: Final = ("state", "cluster", "experiment", "since_s", "older_than_s", "match", "where")
_SHOWN_MAX: Final = 20
Job = JsonObject


def states_of(call: Call) -> list[str]:
    return [state for group in call.get("state", []) for state in group]


def query(
    call: Call, states: list[str] | None = None, limit: int | None = None
) -> list[tuple[str, object]]:
    """What the call selects, in the words of the server; which filters before it limits."""
    return [
        ("state", states_of(call) or states or []), ("cluster", call.get("cluster")),
        ("experiment", call.get("experiment")), ("since", call.get("since_s")), ("match", call.get("match")),
        ("where", call.get("where")), ("limit", limit), ("array", call.get("array")),
        ("older", call.get("older_than_s")),
        # elsewhere --tag is for the new job
        ("tag", call.get("tags") or [] if call.command.name == "ls" else []),
    ]  # fmt: skip


def find(
    call: Call, source: Source, *, states: list[str] | None = None, limit: int | None = None, fold: bool = False,
    brief: bool = False, more: Sequence[tuple[str, object]] = (),
) -> list[Job]:  # fmt: skip
    """The jobs that the call selects, newest first. `states` counts where the call names none.

    `fold`: an array of jobs is one row. `brief`: only what a table shows, and nothing that is
    empty.
    """
    brevity = [("fold", "true" if fold else None), ("brief", "true" if brief else None)]
    jobs: list[Job] = source.get("/api/jobs", [*query(call, states, limit), *brevity, *more])
    oldest_s = call.get("older_than_s")
    if oldest_s is None:
        return jobs
    # once more here: what is deleted by age must be old, whatever the server understood
    now = datetime.now(UTC)
    return [job for job in jobs if (fmt.age_s(job.get("submitted_at"), now) or 0.0) > oldest_s]


def act(
    call: Call,
    source: Source,
    verb: str,
    states: list[str],
    deed: Callable[[Job], str],
    *,
    tells_json: bool = True,
) -> int:
    """`verb` the jobs that are named by id, or those that a selection finds, which is shown and
    asked for first.

    `deed` does it to one job and says what came of it. Without `tells_json` the caller prints the
    JSON himself.
    """
    refs, chosen = call.words, any(call.get(key) for key in KEYS)
    if bool(refs) == chosen or call.after:
        raise UsageError(
            f"hw {verb} needs ids or a selection" + (", not both" if refs else ""),
            f"usage: {call.command.usage}",
        )
    if refs:
        from headway.views.cli import references

        ids = references.to_change(call, source, refs, verb)
        return each(call, source, [{"id": ref} for ref in ids], verb, deed)
    jobs = find(call, source, states=states)
    if not jobs:
        call.terminal.say(f"hw: no job matches, so there is nothing to {verb}")
        if call.as_json and tells_json:
            call.terminal.put_json([])
        return 0
    if not call.get("dry_run") and not call.get("yes"):
        _ask(call, jobs, verb)
    return each(call, source, jobs, verb, deed, tells_json=tells_json)


def _ask(call: Call, jobs: list[Job], verb: str) -> None:
    _list(call, jobs, verb)
    if not (sys.stdin and sys.stdin.isatty()):
        raise UsageError(
            f"hw {verb} of a selection asks first, and there is nobody to ask",
            "to do it anyway: --yes",
        )
    call.terminal.err.write(f"{verb} {fmt.plural(len(jobs), 'job')}? [y/N] ")
    answer = sys.stdin.readline().strip().lower()
    if answer not in ("y", "yes"):
        raise HeadwayError("nothing was done")


def _list(call: Call, jobs: list[Job], verb: str) -> None:
    call.terminal.say(f"{fmt.plural(len(jobs), 'job')} to {verb}:")
    for job in jobs[:_SHOWN_MAX]:
        call.terminal.say("  " + call.terminal.err.safe(f"{job['id']}  {job['state']}"))
    if len(jobs) > _SHOWN_MAX:
        call.terminal.say(f"  and {len(jobs) - _SHOWN_MAX} more")


def each(
    call: Call, source: Source, jobs: list[Job], verb: str, deed: Callable[[Job], str], *, tells: bool = True,
    tells_json: bool = True,
) -> int:  # fmt: skip
    """All of them, whatever happens to one; the worst exit code. Without `tells`, `deed` says
    everything itself.
    """
    worst, done = 0, []
    for job in jobs:
        try:
            if call.get("dry_run"):
                job = _looked_up(source, job)
                if not call.as_json:
                    would = f"would {verb} {job['id']}, which is {job['state']}"
                    call.terminal.put(call.terminal.out.safe(would))
                done.append(job)
                continue
            said = deed(job)
            done.append(job)
            if tells and not call.as_json:
                call.terminal.put(call.terminal.out.safe(said))
        except HeadwayError as error:
            complain(call.terminal, error)
            worst = max(worst, error.exit_code)
    if call.as_json and tells and tells_json:
        call.terminal.put_json(done)
    return worst


def _looked_up(source: Source, job: Job) -> Job:
    """What an id means, job or array, for words about it; one that a selection found is known
    already.
    """
    from headway.views.cli import arrays

    if "state" in job:
        return job
    try:
        found: Job = source.get(job_route(job["id"]))
        return found
    except NotFoundError:
        array = arrays.found(source, job["id"])
        if array is None:
            raise
        return array
