"""`hw page export ID`: one job as one HTML file: the page's own program with the answers inside it.

The file asks nobody for anything: its policy allows exactly its own script and style, by checksum.
"""

import base64
import hashlib
import json
import re
from datetime import UTC, datetime
from pathlib import Path

from headway.model.errors import HeadwayError, NotFoundError, RefusedError, UsageError
from headway.model.json_types import JsonObject
from headway.views.api.source import Source, job_route
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt
from headway.views.text.file_names import file_name

_LINES = 2_000  # in one answer
_LINES_ALL = 20_000  # of the end of the log
_NAMES = 100  # metrics in one question
_NAMES_ALL = 2_000
_PIXELS = 1_000
_PARTS = ("provenance", "why", "streams", "media")
_POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; img-src data:; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; "
    "trusted-types svelte-trusted-html"
)


def command(call: Call) -> int:
    if len(call.words) != 2 or call.after:
        raise UsageError("hw page export takes one id of a job", f"usage: {call.command.usage}")
    source = call.source()
    job: JsonObject = source.get(job_route(call.words[1]))
    page = build(*_program(source), _data(source, job), job["id"])
    file = Path(call.get("output") or file_name(f"{job['id']}.html"))
    try:
        file.write_text(page)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}", "-o FILE") from None
    if call.as_json:
        call.terminal.put_json({"file": str(file), "bytes": len(page.encode())})
    else:
        call.terminal.put(str(file))
        call.terminal.say(
            f"{fmt.size(len(page.encode()))}; it opens in any browser, without a server"
        )
    return 0


def _program(source: Source) -> tuple[str, str]:
    """The page's script and style, as the server serves them."""
    shell = source.raw("/").body.decode()
    scripts = re.findall(r'src="[./]*assets/([\w.-]+\.js)"', shell)
    styles = re.findall(r'href="[./]*assets/([\w.-]+\.css)"', shell)
    if not scripts or not styles:
        raise RefusedError(
            "this installation was built without the page", "npm is needed: make web"
        )
    script = source.raw(f"/assets/{scripts[0]}").body.decode()
    style = "\n".join(source.raw(f"/assets/{name}").body.decode() for name in styles)
    return script, style


def _data(source: Source, job: JsonObject) -> JsonObject:
    names = source.get(job_route(job["id"], "names"))[:_NAMES_ALL]
    charts = []
    for start in range(0, len(names), _NAMES):
        some = [entry["name"] for entry in names[start : start + _NAMES]]
        body = {"jobs": [job["id"]], "names": some, "pixels": _PIXELS}
        charts.append(base64.b64encode(source.post_raw("/api/charts", body)).decode())
    return {
        "job": job,
        "names": names,
        "charts": charts,
        "lines": _lines(source, job["id"]),
        "parts": _parts(source, job["id"]) | {"artifacts": []},
        "exported_at": datetime.now(UTC).isoformat(),
        "version": source.get("/api/server")["version"],
    }


def _lines(source: Source, job_id: str) -> JsonObject:
    """The end of the log, which is where things end."""
    route = job_route(job_id, "lines")
    found: JsonObject = source.get(route, [("tail", "true"), ("count", _LINES)])
    while found["first"] > 0 and len(found["lines"]) < _LINES_ALL:
        first = max(0, found["first"] - _LINES)
        before = source.get(route, [("first", first), ("count", found["first"] - first)])
        found["lines"] = before["lines"] + found["lines"]
        found["first"] = first
    return found


def _parts(source: Source, job_id: str) -> JsonObject:
    found: JsonObject = {}
    for part in _PARTS:
        try:
            found[part] = source.get(job_route(job_id, part))
        except NotFoundError:
            found[part] = None
    try:
        found["usage"] = source.get(job_route(job_id, "usage"), [("points", 400)])
    except HeadwayError:
        found["usage"] = {"curves": {}}
    return found


def build(script: str, style: str, data: JsonObject, title: str) -> str:
    script = script.replace("</script", "<\\/script")
    text = json.dumps(data).replace("<", "\\u003c")
    policy = _POLICY.format(script=_checksum(script), style=_checksum(style))
    safe_title = title.replace("&", "&amp;").replace("<", "&lt;")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe_title}</title><style>{style}</style></head><body>"
        f'<div id="app"></div><script type="application/json" id="headway-data">{text}</script>'
        f'<script type="module">{script}</script></body></html>\n'
    )


def _checksum(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
