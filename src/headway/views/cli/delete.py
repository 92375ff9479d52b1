"""`hw delete ID… | SELECTION`: forget ended jobs. They vanish from lists at once; `hw gc` frees
their space.
"""

import os

from headway.model.errors import NotFoundError
from headway.model.json_types import JsonObject
from headway.views.api.source import job_route
from headway.views.cli import arrays, selection
from headway.views.cli.dispatch import Call

_ENDED = ["succeeded", "failed", "stopped"]


def _left(home: str, job_id: str) -> str:
    """What a job has put into its output folder is a person's: it stays, and is named."""
    folder = os.path.join(home, "output", job_id)
    try:
        has_files = bool(os.listdir(folder))
    except OSError:
        return ""
    return f"; its output stays: {folder}" if has_files else ""


def command(call: Call) -> int:
    source = call.source()

    def deed(job: JsonObject) -> str:
        try:
            answer = source.delete(job_route(job["id"]))
        except NotFoundError:
            array = arrays.found(source, job["id"])
            if array is None:
                raise
            job |= array
            return arrays.delete(source, array)
        if isinstance(answer, dict):
            job |= answer
        return f"{job['id']}  deleted{_left(str(source.home), str(job['id']))}"

    return selection.act(call, source, "delete", _ENDED, deed)
