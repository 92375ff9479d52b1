"""`hw resubmit ID… [options] [-- COMMAND…] | SELECTION`: jobs again, with changes. Submitted first;
only then is the old one stopped, so that a refused submission costs nothing (capability 5).
"""

from headway.model.errors import NotFoundError, UsageError
from headway.model.json_types import JsonObject
from headway.views.api.source import Source, job_route
from headway.views.cli import arrays, references, selection, submission
from headway.views.cli.dispatch import Call
from headway.views.cli.submit import tell_way_back
from headway.views.text import format as fmt

_ENDED = ["succeeded", "failed", "stopped"]


def command(call: Call) -> int:
    if call.after is not None and (len(call.words) != 1 or not call.after):
        raise UsageError(
            "a new command is for one job",
            "for example: hw resubmit 7f3c2 -- python train.py --lr 0.01",
        )
    source = call.source()
    if not call.words:
        return _chosen(call, source)
    made: list[JsonObject] = []

    def deed(job: JsonObject) -> str:
        made.append(_again(call, source, job["id"]))
        if not call.as_json:
            tell = arrays.tell_way_back if made[-1].get("is_array") else tell_way_back
            tell(call, made[-1]["id"])
        return ""

    worst = selection.each(
        call,
        source,
        [{"id": ref} for ref in references.to_change(call, source, call.words, "resubmit")],
        "resubmit",
        deed,
        tells=False,
    )
    if call.as_json and made:
        call.terminal.put_json(made[0] if len(call.words) == 1 else made)
    return worst


def _chosen(call: Call, source: Source) -> int:
    """Those that a selection finds. There -e and -c say which, so the new ones stay in their
    experiment and cluster.
    """
    made: list[JsonObject] = []

    def deed(job: JsonObject) -> str:
        made.append(_again(call, source, job["id"], chosen=True))
        return f"{job['id']} → {made[-1]['id']}"

    worst = selection.act(call, source, "resubmit", _ENDED, deed, tells_json=False)
    if call.as_json:
        call.terminal.put_json(made)
    return worst


def _again(call: Call, source: Source, ref: str, *, chosen: bool = False) -> JsonObject:
    """The server stores the new job before it asks the old one to stop."""
    try:
        old = source.get(job_route(ref))
    except NotFoundError:
        if call.after is not None or arrays.found(source, ref) is None:
            raise
        return submission.resubmit_array(
            source, call, ref, ["failed"] if call.get("failed") else []
        )
    if call.get("failed"):
        raise UsageError("--failed is for an array", f"{old['id']} is a job")
    job = submission.resubmit(source, call, old, moved=not chosen)
    if old["state"] not in fmt.ENDED and not old.get("ended_at"):
        call.terminal.say(f"hw: {old['id']}, which was {old['state']}, is being stopped")
    return job
