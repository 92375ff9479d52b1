"""`hw shell ID [--rank N]`: enter a job that runs or is held: the engine's own way in, in this
terminal.
"""

import os
import sys

from headway.model.errors import RefusedError
from headway.model.json_types import JsonObject
from headway.views.api.source import Source, job_route
from headway.views.cli import references
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt


def command(call: Call) -> int:
    source = call.source()
    ref = references.one(call, source)
    job, argv = way_in(source, ref, call.get("rank"))
    if call.as_json:
        call.terminal.put_json({"argv": argv})
        return 0
    argv = (
        argv
        if sys.stdin and sys.stdin.isatty()
        else _without_terminal(argv, str(job.get("engine")))
    )
    call.terminal.say(f"hw: beside {job['id']} ({job['state']}); exit leaves it as it is")
    source.close()
    os.execvp(argv[0], argv)  # noqa: S606  (the engine's own command, in place of this one)
    return 0


def _without_terminal(argv: list[str], engine: str) -> list[str]:
    """`exec -it` refuses to start without a terminal; commands that are piped in need none."""
    return (
        ["-i" if word == "-it" else word for word in argv]
        if engine in ("docker", "podman")
        else argv
    )


def way_in(
    source: Source, ref: str, rank: int | None = None, task: str | None = None
) -> tuple[JsonObject, list[str]]:
    """The job, and argv of a shell beside it; what to type instead where it has none."""
    job = source.get(job_route(ref))
    argv = source.get(job_route(job["id"], "attach"), [("rank", rank), ("task", task)])["argv"]
    if not argv:
        which = ""
        if rank is not None:
            which = f"rank {rank}"
        elif task is not None:
            which = f"task {task}"
        what = f"no {which} that can be entered" if which else "nothing that can be entered"
        hint = f"to keep a failed job for that: hw resubmit {fmt.suffix(job['id'])} --hold 1h"
        names = [str(one["name"]) for one in (job["attempts"] or [{"tasks": []}])[-1]["tasks"]]
        if which and job["state"] in ("running", "stopping", "held"):
            hint = f"its tasks: {', '.join(names)}" if task is not None else "hw q shows its ranks"
        if job["state"] == "waiting":
            hint = f"why it waits: hw why {fmt.suffix(job['id'])}"
        elif job["state"] in ("running", "stopping") and not which:
            short = fmt.suffix(job["id"])
            hint = f"its output: hw logs -f {short}; what its cluster says of it: hw q {short}"
        raise RefusedError(f"{job['id']} is {job['state']}: there is {what}", hint)
    ours = argv[-2:-1] == ["shell"]  # the agent's own, here or in a container
    return job, [*argv, f"--rank={rank}"] if ours and rank is not None else argv
