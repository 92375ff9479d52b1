"""What a job reads: `hw.data(path)` notes a fingerprint of its data, `hw.use_artifact(ref)` brings an artifact.

`data` never raises. `use_artifact` does, with what to do: a training without its data cannot go on anyway.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time

from headway.client.interrupt import raise_if_signal
from headway.client.metric_values import clean_text
from headway.model.limits import DATA_ENTRIES_MAX, DATA_HASH_BYTES_MAX, DATA_S_MAX

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from typing import Any

    from headway.model.json_types import JsonObject

ANSWER_S = 60.0


def data(path: "str | os.PathLike[str]", name: "str | None" = None) -> None:
    """Note which data this job reads: `hw.data("data/train")`.

    A file of up to 64 MiB is kept by its SHA-256; a larger one and a folder by the names, sizes and times of what is in
    them. Two jobs that read the same have the same fingerprint. It takes two seconds at most.
    """
    from headway.client.api import current_run

    run = current_run()
    try:
        top = os.path.abspath(os.fspath(path))
        found = fingerprint(top)
        run.fact(
            "data",
            name=clean_text(str(name or os.path.basename(top)))[:256],
            path=clean_text(top),
            **found,
        )
    except Exception as error:  # P1: no call of ours raises into training
        raise_if_signal(error)
        run.note(
            f"data {path}", f"data({str(path)!r}) is not noted: {type(error).__name__}: {error}"
        )


def fingerprint(top: str) -> "JsonObject":
    """`{digest method files bytes whole}`; `whole`: everything below was looked at. Raises OSError."""
    status = os.stat(top)
    if not os.path.isdir(top):
        if status.st_size <= DATA_HASH_BYTES_MAX:
            digest = _sha256(top)
            return {
                "digest": digest,
                "method": "sha256",
                "files": 1,
                "bytes": status.st_size,
                "whole": True,
            }
        text = f"{os.path.basename(top)}\n{status.st_size}\n{status.st_mtime_ns}"
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        return {
            "digest": digest,
            "method": "size and time",
            "files": 1,
            "bytes": status.st_size,
            "whole": True,
        }
    return _folder(top)


def _sha256(path: str) -> str:
    hasher = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            hasher.update(part)
    return hasher.hexdigest()


def _folder(top: str) -> "JsonObject":
    hasher, files, size, whole = hashlib.sha256(), 0, 0, True
    until_s = time.monotonic() + DATA_S_MAX
    for folder, folders, names in os.walk(top):
        folders.sort()
        for name in sorted(names):
            if files >= DATA_ENTRIES_MAX or time.monotonic() > until_s:
                whole = False
                break
            path = os.path.join(folder, name)
            try:
                status = os.stat(path)
            except OSError:
                continue  # a link that leads nowhere
            row = f"{os.path.relpath(path, top)}\n{status.st_size}\n{status.st_mtime_ns}\n"
            hasher.update(row.encode("utf-8", "surrogateescape"))
            files += 1
            size += status.st_size
        if not whole:
            break
    return {
        "digest": hasher.hexdigest(),
        "method": "sizes and times",
        "files": files,
        "bytes": size,
        "whole": whole,
    }


def use_artifact(ref: str, path: "str | os.PathLike[str] | None" = None) -> str:
    """Bring a version of an artifact and note that this job has used it: `hw.use_artifact("model:best")` → its folder.

    `path`: where to put it; default `artifacts/NAME-VERSION`, with the job's outputs. What is there already is not
    fetched again. Raises OSError where it cannot be had.
    """
    from headway.client.api import current_run

    run = current_run()
    server = _Server(_socket_of(run))
    found = server.json(f"/api/artifacts/{_quoted(ref)}")
    version = f"{found['name']}:{found['version']}"
    top = os.path.join(
        os.environ.get("HEADWAY_OUTPUT_DIR") or os.getcwd(), "artifacts", version.replace(":", "-")
    )
    top = os.fspath(path) if path is not None else top
    for entry in found["files"]:
        inside = str(entry["path"])
        if any(part in ("", ".", "..") for part in inside.split("/")):
            raise OSError(f"{version} names a file {inside[:60]!r}, which cannot be one")
        _fetch(server, version, entry, os.path.join(top, inside))
    run.fact("artifact_used", ref=version)
    return top


def _socket_of(run: "Any") -> str:
    """The server's own socket, from the task file or what the agent was answered."""
    run.start()
    for name in ("job.json", "task.json"):
        try:
            with open(os.path.join(run.place.task_dir, name), "rb") as file:
                path = str(json.loads(file.read()).get("socket") or "")
        except (OSError, ValueError, AttributeError):
            continue
        if path and os.path.exists(path):
            return path
    raise OSError("the server cannot be reached from here; on its machine: hw artifacts get")


class _Server:
    """Questions over the unix socket: whoever owns it may read."""

    def __init__(self, path: str) -> None:
        self.path = path

    def json(self, route: str) -> "Any":
        return json.loads(self.get(route))

    def get(self, route: str) -> bytes:
        from http.client import HTTPConnection

        connection = HTTPConnection("headway", timeout=ANSWER_S)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(ANSWER_S)
        try:
            connection.sock.connect(self.path)
            connection.request("GET", route)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise OSError(_reason(body) or f"the server answered with {answer.status}")
        return body


def _reason(body: bytes) -> str:
    try:
        error = json.loads(body)["error"]
        return (
            f"{error['message']}; {error['hint']}" if error.get("hint") else str(error["message"])
        )
    except (ValueError, KeyError, TypeError):
        return ""


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe=":")


def _fetch(server: _Server, version: str, entry: "JsonObject", path: str) -> None:
    has_size = os.path.isfile(path) and os.path.getsize(path) == entry["size"]
    if has_size and _sha256(path) == entry["digest"]:
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    draft, hasher, offset = f"{path}.part", hashlib.sha256(), 0
    with open(draft, "wb") as file:
        while offset < int(entry["size"]):
            route = f"/api/artifacts/{_quoted(version)}/file?path={_quoted(str(entry['path']))}&offset={offset}"
            part = server.get(route)
            if not part:
                raise OSError(
                    f"{entry['path']} of {version} ends after {offset} of {entry['size']} bytes"
                )
            hasher.update(part)
            file.write(part)
            offset += len(part)
    if hasher.hexdigest() != entry["digest"]:
        raise OSError(f"{entry['path']} of {version} does not have the digest that it should have")
    os.replace(draft, path)
