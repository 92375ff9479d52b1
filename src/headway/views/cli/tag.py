"""`hw tag ID TAG…`: give a job tags, or with --remove take them away."""

from headway.model.json_types import JsonObject
from headway.views.cli import marks
from headway.views.cli.dispatch import Call


def command(call: Call) -> int:
    ref, *tags = marks.needs(call, 2, "the id of a job and a tag")

    def changed(job: JsonObject) -> JsonObject:
        known = [str(tag) for tag in job.get("tags") or []]
        if call.get("remove"):
            return {"tags": [tag for tag in known if tag not in tags]}
        return {"tags": [*known, *(tag for tag in tags if tag not in known)]}

    return marks.change(
        call, [ref], changed, lambda job: f"tags {', '.join(job['tags']) or 'none'}"
    )
