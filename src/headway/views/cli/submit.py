"""`hw submit COMMAND… | JOB.yaml`: put it in the queue and print the way back (capability 14)."""

from headway.model.json_types import JsonObject
from headway.model.limits import RESERVE_S
from headway.views.cli import submission
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt
from headway.views.text.terminal import BOLD, DIM


def command(call: Call) -> int:
    if submission.job_file(call.words) is None:
        submission.checked_command(call.words)
    source = call.source()
    if call.get("dry_run"):
        from headway.views.cli.dry_run import show

        return show(call, source)
    if call.get("wait") and not submission.makes_array(call):
        from headway.views.cli.run import submit_and_attend

        return submit_and_attend(call, source)
    job = submission.submit(source, call)
    if job.get("is_array"):
        from headway.views.cli import arrays

        return arrays.submitted(call, source, job)
    if call.get("tensorboard") is True:
        from headway.views.cli.tensorboard import start_beside

        start_beside(call, str(job["id"]))
    if call.as_json:
        call.terminal.put_json(job)
    elif submission.is_reservation(call):
        _tell_reservation(call, job)
    else:
        tell_way_back(call, job["id"], job.get("page"))
    return 0


def _tell_reservation(call: Call, job: JsonObject) -> None:
    short, err = fmt.suffix(job["id"]), call.terminal.err
    call.terminal.put(job["id"])
    held = fmt.duration(call.get("max_duration_s") or RESERVE_S)
    call.terminal.say(
        f"hw: from its start on, a node of {err.safe(str(job['cluster']))} is held for {held}"
    )
    ways = " · ".join(f"hw {words} {err.safe(short)}" for words in ("ssh", "q", "release"))
    call.terminal.say(f"  {err.style(ways, DIM)}")


def tell_way_back(call: Call, job_id: str, page: str | None = None) -> None:
    """The id alone is data, for `id=$(hw submit …)`; the commands to go on with are talk."""
    short, err = fmt.suffix(job_id), call.terminal.err
    if call.terminal.out.is_tty:
        call.terminal.put(call.terminal.out.style(job_id, BOLD))
    else:
        call.terminal.put(job_id)
    ways = " · ".join(
        f"hw {words} {err.safe(short)}" for words in ("logs -f", "q", "abort", "resubmit")
    )
    if page:
        ways += f" · {err.safe(page)}"
    call.terminal.say(f"  {err.style(ways, DIM)}")
