"""`hw abort ID… | SELECTION`: stop jobs, by SIGTERM and after a grace time by SIGKILL."""

from headway.model.errors import NotFoundError
from headway.model.json_types import JsonObject
from headway.views.cli import arrays, selection
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt

_OPEN = ["waiting", "running", "stopping", "held", "unknown"]


def command(call: Call) -> int:
    source = call.source()

    def deed(job: JsonObject) -> str:
        try:
            job |= source.ask(job["id"], "abort")
        except NotFoundError:
            if arrays.found(source, job["id"]) is None:
                raise
            return arrays.abort(source, job)
        # The answer tells the state of the moment; that it was asked to stop is what counts.
        return f"{job['id']}  {job['state'] if job['state'] in fmt.ENDED else 'stopping'}"

    return selection.act(call, source, "abort", _OPEN, deed)
