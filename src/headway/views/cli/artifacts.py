"""`hw artifacts ls|get|put|rm`: files of jobs by name and version."""

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from headway.model.errors import DamagedError, NotFoundError, RefusedError, UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import ARTIFACT_PIECE_BYTES
from headway.views.api.source import Source
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt
from headway.views.text import table
from headway.views.text.file_names import file_name

Artifact = JsonObject


def command(call: Call) -> int:
    verb, words = (call.words[0], call.words[1:]) if call.words else ("ls", [])
    if verb == "ls" and len(words) <= 1:
        return _list(call, words[0] if words else None)
    if verb == "get" and len(words) == 1:
        return _get(call, words[0])
    if verb == "put" and len(words) == 1:
        return _put(call, words[0])
    if verb == "rm" and words:
        return _remove(call, words)
    raise UsageError("hw artifacts lists, gets, puts or removes", f"usage: {call.command.usage}")


def _list(call: Call, what: str | None) -> int:
    """All, those of a name, or those that a job has made and used."""
    source = call.source()
    rows: list[Artifact] = source.get("/api/artifacts", [("name", what)])
    if what and not rows:
        try:
            rows = source.get("/api/artifacts", [("job", what)])
        except NotFoundError:
            raise NotFoundError(
                f"no artifact and no job is called {what[:80]!r}", "hw artifacts ls"
            ) from None
    if call.as_json:
        call.terminal.put_json(rows)
        return 0
    if not rows:
        call.terminal.say(
            "no artifacts yet; in Python: hw.artifact(path), here: hw artifacts put PATH"
        )
        return 0
    out = call.terminal.out
    columns = [
        table.Column("artifact", keep=table.ALWAYS), table.Column("type"), table.Column("files", right=True),
        table.Column("size", right=True, keep=1), table.Column("made by", keep=1), table.Column("used by"),
        table.Column("aliases"),
    ]  # fmt: skip
    cells = [
        [
            out.safe(f"{row['name']}:{row['version']}"), out.safe(str(row["type"])), str(row["files"]),
            fmt.size(row["size"]), " ".join(map(fmt.suffix, row["made_by"])), " ".join(map(fmt.suffix, row["used_by"])),
            out.safe(" ".join(row["aliases"])),
        ]
        for row in rows
    ]  # fmt: skip
    above, lines = table.layout(columns, cells, out.columns)
    out.write("\n".join([*([above] if above else []), *lines]) + "\n")
    return 0


def _remove(call: Call, refs: list[str]) -> int:
    """Versions are named one by one: a name alone would mean the latest, or all of them."""
    for ref in refs:
        if ":" not in ref:
            raise UsageError(
                f"{ref[:80]!r} does not say which version",
                f"for example: hw artifacts rm {ref[:80]}:v0",
            )
    source = call.source()
    removed: list[Artifact] = [source.delete(_route(ref)) for ref in refs]
    if call.as_json:
        call.terminal.put_json(removed)
        return 0
    for row in removed:
        call.terminal.put(call.terminal.out.safe(f"{row['name']}:{row['version']}  removed"))
    call.terminal.say("hw: hw gc frees the space of files that no version has any more")
    return 0


# -- get ---------------------------------------------------------------------------------------------------------------


def _get(call: Call, ref: str) -> int:
    source = call.source()
    found: Artifact = source.get(_route(ref))
    top = Path(call.get("output") or file_name(f"{found['name']}-{found['version']}"))
    written = []
    for entry in found["files"]:
        path = top / _inside(str(entry["path"]))
        path.parent.mkdir(parents=True, exist_ok=True)
        _fetch(source, found, entry, path)
        written.append({"path": str(path), "size": entry["size"], "digest": entry["digest"]})
    if call.as_json:
        call.terminal.put_json({**found, "files": written})
        return 0
    call.terminal.put(str(top))
    name = f"{found['name']}:{found['version']}"
    call.terminal.say(
        f"{call.terminal.err.safe(name)}: {len(written)} files, {fmt.size(found['size'])}"
    )
    return 0


def _route(ref: str, *rest: str) -> str:
    return "/".join(("/api/artifacts", quote(ref, safe=":"), *rest))


def _inside(path: str) -> str:
    """Names come from a server; none of them may lead out of the folder (B20)."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\0" in path:
        raise DamagedError(f"the server named a file {path[:60]!r}, which cannot be one")
    return path


def _fetch(source: Source, found: Artifact, entry: Artifact, path: Path) -> None:
    """Into a draft, checked by its digest, then under its name."""
    if path.exists() and path.is_file() and _digest(path) == entry["digest"]:
        return
    draft, hasher, offset = path.with_name(f".{path.name}.part"), hashlib.sha256(), 0
    ref = f"{found['name']}:{found['version']}"
    draft.unlink(missing_ok=True)  # of one who was killed; or a link, which is not written through
    with draft.open("xb") as file:
        while offset < int(entry["size"]):
            data = source.raw(
                _route(ref, "file"), [("path", entry["path"]), ("offset", offset)]
            ).body
            if not data:
                raise DamagedError(
                    f"{entry['path']} ends after {offset} of {entry['size']} bytes on the server"
                )
            hasher.update(data)
            file.write(data)
            offset += len(data)
    if hasher.hexdigest() != entry["digest"]:
        raise DamagedError(
            f"{entry['path']} does not have the digest that it should have",
            f"it is kept as {draft}",
        )
    draft.chmod(int(entry.get("mode") or 0o644) & 0o777)
    draft.replace(path)


# -- put ---------------------------------------------------------------------------------------------------------------


def _put(call: Call, place: str) -> int:
    top = Path(place).expanduser()
    if not top.exists():
        raise UsageError(f"there is no {place}", "give the path of a file or a folder")
    name = call.get("name") or top.resolve().name
    made = put_path(call.source(), top, name, call.get("type") or "file", call.get("tags") or [])
    if call.as_json:
        call.terminal.put_json(made)
    else:
        call.terminal.put(call.terminal.out.safe(f"{made['name']}:{made['version']}"))
    return 0


def put_path(
    source: Source,
    top: Path,
    name: str,
    type_: str,
    aliases: list[str],
    chosen: Callable[[Path], bool] = lambda path: True,
) -> Artifact:
    """A file or a folder becomes a version of that name. `chosen`: of its files, those that may."""
    files = [_send(source, inside, path) for inside, path in _walk(top) if chosen(path)]
    body = {"name": name, "type": type_, "files": files, "aliases": aliases}
    made: Artifact = source.post("/api/artifacts", body, again=True)
    return made


def _walk(top: Path) -> Iterator[tuple[str, Path]]:
    if top.is_file():
        yield top.name, top
        return
    for folder, folders, names in os.walk(top):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file():
                yield str(path.relative_to(top)), path


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _send(source: Source, inside: str, path: Path) -> Artifact:
    """Only what the server lacks goes over: it is asked first."""
    digest, size = _digest(path), path.stat().st_size
    route = f"/api/artifacts/blobs/{digest}"
    have = int(source.send(route, b"", [("size", size)])["have"]) if size else 0
    with path.open("rb") as file:
        while have < size:
            file.seek(have)
            data = file.read(ARTIFACT_PIECE_BYTES)
            if not data:
                raise RefusedError(
                    f"{path} has become shorter while it was read",
                    "put it again when nobody writes to it",
                )
            have = int(source.send(route, data, [("offset", have), ("size", size)])["have"])
    return {"path": inside, "digest": digest, "size": size, "mode": path.stat().st_mode & 0o777}
