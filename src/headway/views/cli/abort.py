"""`hw abort ID… | SELECTION`: stop jobs, by SIGTERM and after a grace time by SIGKILL."""

from typing import Any

from headway.views.cli import selection
from headway.views.cli.dispatch import Call
from headway.views.source import job_route

_OPEN = ["waiting", "running", "stopping", "held", "unknown"]


def command(call: Call) -> int:
    source = call.source()

    def deed(job: dict[str, Any]) -> str:
        job |= source.post(job_route(job["id"], "abort"), {})
        state = job["state"]
        return f"{job['id']}  {state}" + ("" if state in ("stopping", "stopped") else ", and stays so: it has ended")

    return selection.act(call, source, "abort", _OPEN, deed)
