"""`hw bundle ID [-o FILE]`: all about a job in one file that can be sent to somebody who helps
(capability 62).

Everything in it came through the server, which stores nothing that was not masked; it is masked
once more here, with the secrets that this environment knows. The file is private (0600) and never
replaces another one.
"""

import io
import json
import os
import platform
import sys
import tarfile  # noqa: TID251  (written here, never extracted)
import time
from collections.abc import Iterator
from pathlib import Path

from headway import __version__
from headway.home import paths as homes
from headway.model.errors import HeadwayError, UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import BUNDLE_BYTES_MAX, BUNDLE_LOG_BYTES_MAX, BUNDLE_SERVER_LOG_BYTES_MAX
from headway.settings.layers import Settings, load
from headway.views.api.source import Source, job_route
from headway.views.cli import references
from headway.views.cli.dispatch import Call
from headway.views.cli.output import read_raw
from headway.views.text import format as fmt
from headway.views.text.file_names import file_name
from headway.wire.redact import mask_text, secret_values

_RECORDS = 1_000  # of `logging`, the last ones

_README = """What hw bundle wrote about one job. Secrets are masked where Headway knows them; look through it before you
send it on. job.json is what `hw q ID --json` says, with the cause of every attempt; events.json is what happened, in
order; records.json has the last records of `logging`, usage.json what it used;
logs/ holds the end of each stream; machine.json and settings.json say where it ran and how Headway was set up.
"""


def command(call: Call) -> int:
    source = call.source()
    job = source.get(job_route(references.one(call, source)))
    path = Path(call.get("output") or file_name(f"{fmt.suffix(job['id'])}.tar.gz"))
    settings = load(Path.cwd())
    mask = _Mask(settings)
    with _private_file(path) as file, tarfile.open(fileobj=file, mode="w:gz") as bundle:
        for name, data in _members(source, job, settings):
            _add(bundle, "/".join(map(file_name, (job["id"], *name.split("/")))), mask(data))
    if call.as_json:
        call.terminal.put_json(
            {"id": job["id"], "file": str(path.absolute()), "bytes": path.stat().st_size}
        )
    else:
        call.terminal.put(call.terminal.out.safe(str(path)))
        look = fmt.shell_words(["tar", "-tzf", str(path)])
        call.terminal.say(
            f"  {fmt.size(path.stat().st_size)}, readable by you alone; look into it: {look}"
        )
    return 0


class _Mask:
    """Every byte goes through here on its way into the file."""

    def __init__(self, settings: Settings) -> None:
        names = list(settings.get("secret_names") or [])
        env = {**settings.secrets(), **os.environ}
        self._values = sorted(
            {*secret_values(env, names), *settings.secrets().values()}, key=len, reverse=True
        )

    def __call__(self, data: bytes) -> bytes:
        text = data.decode("utf-8", "surrogateescape")
        return mask_text(text, self._values).encode("utf-8", "surrogateescape")


def _private_file(path: Path) -> io.BufferedWriter:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.fdopen(os.open(path, flags, 0o600), "wb")
    except FileExistsError:
        raise UsageError(f"{path} is there already", "another name: hw bundle ID -o FILE") from None
    except OSError as error:
        raise HeadwayError(
            f"{path} cannot be written: {error.strerror}", "another one: hw bundle ID -o FILE"
        ) from None


def _members(source: Source, job: JsonObject, settings: Settings) -> Iterator[tuple[str, bytes]]:
    """(name, content) of each file, most telling first."""
    yield "README", _README.encode()
    yield "job.json", _json(job)
    for name in ("events", "provenance", "streams", "timings"):
        yield f"{name}.json", _asked(source, job, name)
    yield "metrics.json", _asked(source, job, "metrics", [("points", 200)])
    yield "records.json", _asked(source, job, "records", [("tail", _RECORDS)])
    yield "usage.json", _asked(source, job, "usage", [("points", 200)])
    yield "machine.json", _json(_machine())
    yield "settings.json", _json(_settings(settings))
    yield "server.log", _tail(homes.Paths(source.home).server_log, BUNDLE_SERVER_LOG_BYTES_MAX)
    yield from _logs(source, job)


def _asked(
    source: Source, job: JsonObject, name: str, query: list[tuple[str, object]] | None = None
) -> bytes:
    """What cannot be had is told in its place: the rest is worth having."""
    try:
        return _json(source.get(job_route(job["id"], name), query or []))
    except HeadwayError as error:
        return _json({"error": error.message})


def _logs(source: Source, job: JsonObject) -> Iterator[tuple[str, bytes]]:
    left = BUNDLE_BYTES_MAX
    for stream in reversed(source.get(job_route(job["id"], "streams"))):  # the last attempt first
        if stream["kind"] != "raw" or left <= 0:
            continue
        role, _, rank = str(stream["name"]).partition("-")
        query = [
            ("format", "raw"),
            ("attempt", stream["attempt"]),
            ("task", stream["task"]),
            ("stream", role),
        ]
        query += [("rank", rank)] if rank else []
        try:
            data, _ = read_raw(
                source, job["id"], [*query, ("bytes", min(BUNDLE_LOG_BYTES_MAX, left))]
            )
        except HeadwayError as error:
            data = f"hw: {error.message}\n".encode()
        left -= len(data)
        yield f"logs/{stream['attempt']}/{stream['task']}/{stream['name']}", data


def _machine() -> JsonObject:
    return {
        "headway": __version__,
        "python": sys.version,
        "executable": sys.executable,
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "written_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "variables": sorted(os.environ),  # their names only
    }


def _settings(settings: Settings) -> JsonObject:
    from headway.settings.schema import SETTINGS

    return {name: settings.get(name) for name in SETTINGS}


def _tail(path: Path, bytes_max: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - bytes_max))
            return file.read(bytes_max)
    except OSError as error:
        return f"hw: {path}: {error.strerror}\n".encode()


def _json(value: object) -> bytes:
    return (
        json.dumps(value, indent=1, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"
    )


def _add(bundle: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = len(data), 0o600, int(time.time())
    bundle.addfile(info, io.BytesIO(data))
