"""`hw delete ID… | SELECTION`: forget ended jobs. They vanish from lists at once; `hw gc` frees their space."""

from typing import Any

from headway.views.cli import selection
from headway.views.cli.dispatch import Call
from headway.views.source import job_route

_ENDED = ["succeeded", "failed", "stopped"]


def command(call: Call) -> int:
    source = call.source()

    def deed(job: dict[str, Any]) -> str:
        answer = source.delete(job_route(job["id"]))
        if isinstance(answer, dict):
            job |= answer
        return f"{job['id']}  deleted"

    return selection.act(call, source, "delete", _ENDED, deed)
