"""`hw submit COMMAND…`: put a command in the queue and print the way back (capability 14)."""

import os

from headway.model.errors import UsageError
from headway.views import format as fmt
from headway.views.cli import submission
from headway.views.cli.dispatch import Call
from headway.views.terminal import BOLD, DIM


def command(call: Call) -> int:
    submission.checked_command(call.words)
    _refuse_file(call.words)
    source = call.source()
    if call.get("wait"):
        from headway.views.cli.run import submit_and_attend

        return submit_and_attend(call, source)
    job = submission.submit(source, call)
    if call.as_json:
        call.terminal.put_json(job)
    else:
        tell_way_back(call, job["id"])
    return 0


def tell_way_back(call: Call, job_id: str) -> None:
    """The id alone is data, for `id=$(hw submit …)`; the commands to go on with are talk."""
    short, err = fmt.suffix(job_id), call.terminal.err
    if call.terminal.out.is_tty:
        call.terminal.put(call.terminal.out.style(job_id, BOLD))
    else:
        call.terminal.put(job_id)
    ways = " · ".join(f"hw {words} {err.safe(short)}" for words in ("logs -f", "q", "abort", "resubmit"))
    call.terminal.say(f"  {err.style(ways, DIM)}")


def _refuse_file(words: list[str]) -> None:
    """A sole word that names an existing YAML file means a job file, which this version does not read."""
    if len(words) == 1 and words[0].endswith((".yaml", ".yml")) and os.path.exists(words[0]):
        raise UsageError(
            f"{words[0]} is a job file, and this version of Headway cannot submit job files yet",
            "submit the command that stands in it, for example: hw submit -n 4 python train.py",
        )
