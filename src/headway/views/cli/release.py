"""`hw release ID… | SELECTION`: free jobs that are held after they failed. They end as they failed."""

from headway.model.json_types import JsonObject
from headway.views.cli import selection
from headway.views.cli.dispatch import Call


def command(call: Call) -> int:
    source = call.source()

    def deed(job: JsonObject) -> str:
        job |= source.ask(job["id"], "release")
        return f"{job['id']}  released"

    return selection.act(call, source, "release", ["held"], deed)
