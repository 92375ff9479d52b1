"""What people say of a job afterwards: name, tags, star, bug, description. Called by `tag`, `star`,
`bug`, `describe` and `rename`; the page asks for the same by `PATCH /api/jobs/{ref}`.
"""

from collections.abc import Callable

from headway.model.errors import NotFoundError, UsageError
from headway.model.json_types import JsonObject
from headway.views.api.source import Source, job_route
from headway.views.cli import arrays, references
from headway.views.cli.dispatch import Call
from headway.views.console.feed import of_array

Job = JsonObject


def change(
    call: Call,
    words: list[str],
    changes: Callable[[Job], JsonObject],
    said: Callable[[Job], str],
) -> int:
    """Change each job that a word means; a word may hold several, separated by commas. An array
    means all its jobs.
    """
    source = call.source()
    done: list[Job] = []
    for ref in ",".join(words).split(","):
        for job in _jobs(call, source, ref):
            done.append(source.patch(job_route(str(job["id"])), changes(job)))
            if not call.as_json:
                call.terminal.put(call.terminal.out.safe(f"{done[-1]['id']}  {said(done[-1])}"))
    if call.as_json:
        call.terminal.put_json(done[0] if len(done) == 1 else done)
    return 0


def _jobs(call: Call, source: Source, word: str) -> list[Job]:
    ref = references.found(call, source, word)["id"]
    try:
        return [source.get(job_route(ref))]
    except NotFoundError:
        array = arrays.found(source, ref)
        if array is None:
            raise
        return of_array(source, str(array["uuid"]))


def needs(call: Call, least: int, what: str) -> list[str]:
    if len(call.words) < least or call.after:
        raise UsageError(f"hw {call.command.name} needs {what}", f"usage: {call.command.usage}")
    return call.words
