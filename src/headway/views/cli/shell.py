"""`hw shell ID [--rank N]`: enter a job that runs or is held: the engine's own way in, in this terminal."""

import os

from headway.model.errors import RefusedError
from headway.views import format as fmt
from headway.views.cli.dispatch import Call, one_word
from headway.views.source import job_route


def command(call: Call) -> int:
    ref = one_word(call, "id of a job")
    source, rank = call.source(), call.get("rank")
    job = source.get(job_route(ref))
    argv = source.get(job_route(job["id"], "attach"), [("rank", rank)])["argv"]
    if not argv:
        what = f"no rank {rank} that can be entered" if rank is not None else "nothing that can be entered"
        hint = f"to keep a failed job for that: hw resubmit {fmt.suffix(job['id'])} --hold 1h"
        raise RefusedError(f"{job['id']} is {job['state']}: there is {what}", hint)
    if job["engine"] == "local" and rank is not None:
        argv = [*argv, f"--rank={rank}"]
    if call.as_json:
        call.terminal.put_json({"argv": argv})
        return 0
    call.terminal.say(f"hw: beside {job['id']} ({job['state']}); exit leaves it as it is")
    source.close()
    os.execvp(argv[0], argv)  # noqa: S606  (the engine's own command, in place of this one)
    return 0
