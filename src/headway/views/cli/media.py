"""`hw media ID`: images, audio, tables, histograms and texts that a job logged; as a list, or as files."""

import json
from pathlib import Path

from headway.model.json_types import JsonObject
from headway.views.api.source import job_route
from headway.views.cli.dispatch import Call, one_word
from headway.views.text import format as fmt
from headway.views.text import table
from headway.views.text.file_names import file_name

_SUFFIX = {
    "image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", "image/apng": "png",
    "audio/wav": "wav", "application/json": "json", "application/vnd.plotly.v1+json": "json",
    "text/plain; charset=utf-8": "txt", "video/mp4": "mp4", "image/svg+xml": "svg",
}  # fmt: skip


def command(call: Call) -> int:
    ref = one_word(call, "the id of a job")
    source = call.source()
    names = call.get("metrics") or [None]
    rows: list[JsonObject] = []
    for name in names:
        rows += source.get(job_route(ref, "media"), [("name", name), ("limit", 10_000)])
    if call.get("output"):
        _save(call, ref, rows, Path(call.get("output")))
        return 0
    if call.as_json:
        call.terminal.put_json(rows)
        return 0
    if not rows:
        call.terminal.say(
            "this job has logged no media; in Python: hw.log({'sample': hw.Image(array)}, step=i)"
        )
        return 0
    out = call.terminal.out
    columns = [
        table.Column("name", keep=table.ALWAYS), table.Column("step", right=True), table.Column("kind", keep=1),
        table.Column("size", right=True), table.Column("rank", right=True), table.Column("caption"),
    ]  # fmt: skip
    cells = [
        [
            out.safe(str(row["name"])), str(row["step"]), str(row["kind"]), fmt.size(row["size"]), str(row["rank"]),
            out.safe(str(row["meta"].get("caption") or "")),
        ]
        for row in rows
    ]  # fmt: skip
    above, lines = table.layout(columns, cells, out.columns)
    out.write("\n".join([*([above] if above else []), *lines]) + "\n")
    return 0


def _save(call: Call, ref: str, rows: list[JsonObject], folder: Path) -> None:
    """One file each, `NAME-STEP-NUMBER.SUFFIX`, and a list of them in `media.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    source = call.source()
    for row in rows:
        name = "".join(
            char if char.isalnum() or char in "._-" else "_" for char in str(row["name"])
        )[:80]
        suffix = _SUFFIX.get(row["mime"], "bin")
        path = folder / file_name(
            f"{name.lstrip('.') or 'media'}-{row['step']}-{row['number']}.{suffix}"
        )
        path.write_bytes(source.raw(job_route(ref, "media/data"), [("number", row["number"])]).body)
        row["file"] = path.name
    (folder / "media.json").write_text(json.dumps(rows, indent=1) + "\n")
    if call.as_json:
        call.terminal.put_json(rows)
    else:
        call.terminal.put(str(folder))
        call.terminal.say(f"{len(rows)} files")
