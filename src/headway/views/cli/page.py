"""`hw page [ID]`: a link that logs a browser in once, opened where there is a browser. `hw page export`: one file."""

import os
import shutil
import sys
from pathlib import Path

from headway.home.paths import write_private
from headway.model.errors import NotFoundError, RefusedError, UsageError
from headway.views.api.source import job_route
from headway.views.cli import page_export
from headway.views.cli.dispatch import Call

_REDIRECT = """<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">
<title>Headway</title><meta http-equiv="refresh" content="0; url={url}">
<p>If nothing happens: <a href="{url}">open Headway</a></p>
"""


def command(call: Call) -> int:
    if call.words[:1] == ["export"]:
        return page_export.command(call)
    if len(call.words) > 1 or call.after:
        raise UsageError("hw page takes one id of a job, or none", f"usage: {call.command.usage}")
    url = login_url(call, _path(call))
    if call.as_json:
        call.terminal.put_json({"url": url})
        return 0
    call.terminal.put(url)
    if _has_browser():
        _open(call, url)
    else:
        call.terminal.say("open it in a browser on this machine: it logs in once, within 5 minutes")
    return 0


def _path(call: Call) -> str:
    if not call.words:
        return "/"
    try:
        return f"/j/{call.source().get(job_route(call.words[0]))['id']}"
    except NotFoundError as error:
        if error.candidates:
            raise
        array = call.source().get(f"/api/arrays/{call.words[0]}")
        return f"/?q=array:{array['uuid']}"


def login_url(call: Call, path: str) -> str:
    """The code stands behind #, so that a browser sends it to nobody and no log has it."""
    source = call.source()
    if not source.get("/api/server").get("page"):
        raise RefusedError(
            "this installation was built without the page",
            "npm is needed to build it: make web, then hw server stop",
        )
    given = source.post("/api/login-code", {"role": call.get("role") or "operate"})
    if not given["url"]:
        raise RefusedError("this server has no address for browsers", "hw server logs says why")
    return f"{given['url']}/login#{given['code']}{path}"


def _has_browser() -> bool:
    if not sys.stdout.isatty() or os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform == "darwin" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


def _open(call: Call, url: str) -> None:
    """Through a private file that leads there: a command line can be read by every user of the machine."""
    opener = shutil.which("open" if sys.platform == "darwin" else "xdg-open")
    if opener is None:
        call.terminal.say("no xdg-open here: open the link in a browser on this machine")
        return
    import subprocess

    file = Path(call.source().home) / "open-page.html"
    write_private(file, _REDIRECT.format(url=url.replace("&", "&amp;").replace('"', "&quot;")))
    subprocess.Popen(
        [opener, file.as_uri()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
