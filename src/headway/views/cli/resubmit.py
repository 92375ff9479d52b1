"""`hw resubmit ID… [options] [-- COMMAND…]`: the same job again, with changes. Submitted first; only then is the old
one stopped, so that a refused submission costs nothing (capability 5)."""

from typing import Any

from headway.model.errors import HeadwayError, NotFoundError, UsageError
from headway.views import format as fmt
from headway.views.cli import arrays, submission
from headway.views.cli.dispatch import Call, complain
from headway.views.cli.submit import tell_way_back
from headway.views.source import Source, job_route
from headway.wire.redact import MASK


def command(call: Call) -> int:
    if not call.words:
        raise UsageError("hw resubmit needs the id of a job", f"usage: {call.command.usage}")
    if call.after is not None and (len(call.words) > 1 or not call.after):
        raise UsageError("a new command is for one job", "for example: hw resubmit 7f3c2 -- python train.py --lr 0.01")
    source = call.source()
    made: list[dict[str, Any]] = []
    worst = 0
    for ref in dict.fromkeys(call.words):
        try:
            job = _again(call, source, ref)
            made.append(job)
            if not call.as_json:
                (arrays.tell_way_back if job.get("is_array") else tell_way_back)(call, job["id"])
        except HeadwayError as error:
            complain(call.terminal, error)
            worst = max(worst, error.exit_code)
    if call.as_json and made:
        call.terminal.put_json(made[0] if len(call.words) == 1 else made)
    return worst


def _again(call: Call, source: Source, ref: str) -> dict[str, Any]:
    """The server stores the new job before it asks the old one to stop."""
    try:
        old = source.get(job_route(ref))
    except NotFoundError:
        if call.after is not None or arrays.found(source, ref) is None:
            raise
        return submission.resubmit_array(source, call, ref, ["failed"] if call.get("failed") else [])
    if call.get("failed"):
        raise UsageError("--failed is for an array", f"{old['id']} is a job")
    if call.after is None and any(MASK in str(word) for word in old["command"]):
        raise UsageError(
            f"the command of {old['id']} held a secret, which is not kept",
            f"give it again: hw resubmit {fmt.suffix(old['id'])} -- COMMAND…",
        )
    job = submission.resubmit(source, call, old)
    if old["state"] not in fmt.ENDED and not old.get("ended_at"):
        call.terminal.say(f"hw: {old['id']}, which was {old['state']}, is being stopped")
    return job
