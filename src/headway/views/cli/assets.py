"""`hw q ID --assets`: the logs of a job as files in `./assets/<id>/`, of which only new bytes are
fetched.

A file holds the bytes of one stream from its start on, so its length says where to go on.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headway.model.errors import DamagedError, RefusedError
from headway.model.json_types import JsonObject
from headway.views.api.source import Source, job_route
from headway.views.cli.output import read_raw

# how the server shows a gap
_GAP: Final = re.compile(rb"\n\[headway: ([\d,]{1,30}) bytes missing: [^\]\n]*\]\n")
# Names come from a server; they make a path only if they are plain words (B10, B20).
_WORD: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")


def fetch(
    source: Source, job: JsonObject, below: Path = Path("assets")
) -> Iterator[tuple[Path, int]]:
    """Bring every log up to date; yields (file, new bytes)."""
    job_id = _word(str(job["id"]))
    for stream in source.get(job_route(job_id, "streams")):
        if stream.get("kind") != "raw" or stream["name"].endswith(".index"):
            continue
        folder = below / job_id / str(int(stream["attempt"])) / _word(str(stream["task"]))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / _word(str(stream["name"]))
        yield path, _bring_up_to_date(source, job_id, stream, path)


def _word(text: str) -> str:
    if not _WORD.match(text) or ".." in text:
        raise DamagedError(f"the server named a file {text[:60]!r}, which cannot be one")
    return text


def _bring_up_to_date(source: Source, job_id: str, stream: JsonObject, path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o600)
    except OSError as error:
        raise RefusedError(
            f"{path} cannot be written: {error.strerror}", f"move it away: mv {path} {path}.old"
        ) from None
    with open(fd, "wb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise RefusedError(
                f"{path} is not a file; nothing is written to it",
                f"move it away: mv {path} {path}.old",
            )
        start = offset = file.seek(0, os.SEEK_END)
        name, rank = str(stream["name"]), stream.get("rank")
        query = [
            ("format", "raw"),
            ("attempt", stream["attempt"]),
            ("task", stream["task"]),
            ("rank", rank),
        ]
        query += [("stream", name.split("-", 1)[0])]
        while offset < int(stream["position"]):
            data, after = read_raw(source, job_id, [*query, ("offset", offset)])
            if after <= offset:
                break
            for place, piece in placed(data, offset, after):
                _write(fd, piece, place)
            offset = after
        if offset > start:
            os.ftruncate(fd, offset)  # a gap at the end
        return offset - start


def placed(data: bytes, offset: int, after: int) -> Iterator[tuple[int, bytes]]:
    """Pieces with their places in the stream. A gap is a line that says so, and what it lacks is a
    hole in the file: byte N of the file stays byte N of the stream, so that the next fetch can go
    on at the file's end.
    """
    if len(data) == after - offset:
        yield offset, data
        return
    position = 0
    for gap in _GAP.finditer(data):
        yield offset, data[position : gap.start()]
        offset += gap.start() - position
        missing = int(gap[1].replace(b",", b""))
        yield offset, gap[0][:missing]
        offset, position = offset + missing, gap.end()
    yield offset, data[position : position + max(after - offset, 0)]


def _write(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done
