"""`hw code ID [FOLDER]`: the code that a job ran from, laid out as files (capability 47)."""

import os

from headway.model.errors import HeadwayError, RefusedError, UsageError
from headway.views.api.source import job_route
from headway.views.cli import references
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt
from headway.views.text.file_names import file_name


def command(call: Call) -> int:
    if not 1 <= len(call.words) <= 2 or call.after:
        raise UsageError(
            "hw code takes the id of a job, and a folder if you like",
            f"usage: {call.command.usage}",
        )
    source = call.source()
    job = source.get(job_route(references.found(call, source, call.words[0])["id"]))
    digest = job.get("code")
    if not digest:
        raise RefusedError(
            f"{job['id']} ran in its folder, {job['cwd']}, not from a snapshot",
            "hw submit --snapshot keeps the code with the job; hw q shows the commit that it ran with",
        )
    folder = os.path.abspath(call.words[1] if len(call.words) == 2 else file_name(job["id"]))
    files = _restore(str(digest), folder, bool(call.get("force")))
    if call.as_json:
        call.terminal.put_json({"id": job["id"], "code": digest, "folder": folder, "files": files})
    else:
        call.terminal.put(call.terminal.out.safe(folder))
        call.terminal.say(f"  {fmt.plural(files, 'file')} of snapshot {digest[:12]}")
    return 0


def _restore(digest: str, folder: str, force: bool) -> int:
    from headway.code import checkout
    from headway.code.depot import Depot
    from headway.home import paths

    depot = Depot(paths.home() / "code")
    try:
        return checkout.restore(depot, digest, folder, force=force)
    except OSError as error:
        raise HeadwayError(
            f"{folder} cannot be written: {error.strerror}", "name another: hw code ID FOLDER"
        ) from None
    finally:
        depot.close()
