"""`hw page export ID…`: one job, or a comparison of several, as one HTML file: the page's own program with the answers
inside it.

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
_PIXELS_COMPARED = 300  # of each of many lines
_IMPORTANCE_NAMES = 20  # metrics whose settings are weighed
_DIFF_JOBS = 8  # the page shows differences of so many
_PARTS = ("provenance", "why", "streams", "media")
_POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; img-src data:; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; "
    "trusted-types svelte-trusted-html"
)


def command(call: Call) -> int:
    refs = call.words[1:]
    if not refs or call.after:
        raise UsageError("hw page export takes ids of jobs", f"usage: {call.command.usage}")
    source = call.source()
    if len(refs) == 1:
        job: JsonObject = source.get(job_route(refs[0]))
        title = str(job["id"])
        data = _job_data(source, job)
    else:
        title = f"compare-{len(refs)}-jobs"
        data = _compare_data(source, refs)
    page = build(*_program(source), data, title)
    file = Path(call.get("output") or file_name(f"{title}.html"))
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


def _job_data(source: Source, job: JsonObject) -> JsonObject:
    names = source.get(job_route(job["id"], "names"))[:_NAMES_ALL]
    return {
        "job": job,
        "compared": None,
        "names": names,
        "charts": _charts(source, [job["id"]], [entry["name"] for entry in names], _PIXELS),
        "lines": _lines(source, job["id"]),
        "parts": _parts(source, job["id"]) | {"artifacts": []},
        **_about(source),
    }


def _compare_data(source: Source, refs: list[str]) -> JsonObject:
    table = source.post("/api/compare", {"ids": refs, "limit": len(refs)})
    ids = [job["id"] for job in table["jobs"]]
    names = table["metrics"][:_NAMES_ALL]
    importance = {}
    if len(ids) > 2:
        for name in names[:_IMPORTANCE_NAMES]:
            try:
                asked = {"ids": ids, "name": [name]}
                importance[name] = source.post("/api/compare/importance", asked)
            except HeadwayError:
                continue  # too few jobs have it: the page shows the plots without it
    difference = None
    if len(ids) <= _DIFF_JOBS:
        difference = source.get("/api/diff", [("ids", job_id) for job_id in ids])
    return {
        "job": None,
        "compared": {"compare": table, "importance": importance, "diff": difference},
        "names": [],
        "charts": _charts(source, ids, names, _PIXELS_COMPARED),
        "lines": {"total": 0, "first": 0, "lines": [], "bytes": 0},
        "parts": {},
        **_about(source),
    }


def _about(source: Source) -> JsonObject:
    return {
        "exported_at": datetime.now(UTC).isoformat(),
        "version": source.get("/api/server")["version"],
    }


def _charts(source: Source, jobs: list[str], names: list[str], pixels: int) -> list[str]:
    charts = []
    for start in range(0, len(names), _NAMES):
        body = {"jobs": jobs, "names": names[start : start + _NAMES], "pixels": pixels}
        charts.append(base64.b64encode(source.post_raw("/api/charts", body)).decode())
    return charts


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
        route = job_route(job_id, "usage/by")
        found["usage_by"] = {by: source.get(route, [("by", by)]) for by in ("rank", "node", "gpu")}
    except HeadwayError:
        found["usage_by"] = {}  # it ended before anything was measured
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
