"""`/api/artifacts…`: files of jobs by name and version; their bytes, in pieces, as attachments."""

import os
import sqlite3
import time
from pathlib import Path

import msgspec

from headway.model.errors import NotFoundError, UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import ARTIFACT_PIECE_BYTES
from headway.server import contract
from headway.server.api.media import attachment
from headway.server.app import Route
from headway.server.http.auth import Role
from headway.server.http.request import Call, Count, Reply, reply_json
from headway.store import artifacts


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    type: str | None = None
    job: str | None = None


class File(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    offset: Count = 0


class Blob(msgspec.Struct, forbid_unknown_fields=True):
    offset: Count = 0
    size: Count = 0


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    digest: str
    size: Count
    mode: Count = 0o644


class Version(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    files: list[Entry]
    type: str = "file"
    aliases: list[str] = []
    meta: JsonObject = {}


async def list_all(call: Call) -> Reply:
    asked = call.query(Asked)
    job = await call.services.find_ref(asked.job) if asked.job else None
    return reply_json(await call.services.query(artifacts.listing, asked.name, asked.type, job))


def read_one(c: sqlite3.Connection, ref: str) -> JsonObject:
    return artifacts.shown(c, artifacts.find(c, ref), whole_list=True)


async def show(call: Call) -> Reply:
    return reply_json(await call.services.query(read_one, call.params["ref"]))


async def read_file(call: Call) -> Reply:
    """A piece of one file; the header `x-headway-size` says how large the whole is."""
    asked = call.query(File)
    found = await call.services.query(read_one, call.params["ref"])
    entry = next((entry for entry in found["files"] if entry["path"] == asked.path), None)
    if entry is None:
        raise NotFoundError(f"{found['name']}:{found['version']} has no file {asked.path[:200]!r}")
    data = await call.services.slow_query(_read, call.services.paths.artifacts, entry, asked.offset)
    reply = attachment(data, "application/octet-stream", os.path.basename(asked.path))
    reply.headers.append((b"x-headway-size", str(entry["size"]).encode()))
    return reply


def _read(_: sqlite3.Connection, store: Path, entry: JsonObject, offset: int) -> bytes:
    if entry["digest"] == artifacts.EMPTY:
        return b""
    try:
        with artifacts.blob_path(store, entry["digest"]).open("rb") as file:
            file.seek(offset)
            return file.read(ARTIFACT_PIECE_BYTES)
    except OSError as error:
        raise NotFoundError(
            f"the bytes of {entry['path'][:200]!r} are not here: {error.strerror}"
        ) from None


async def put_blob(call: Call) -> Reply:
    """A piece of a file that is to have this digest → `{"have": bytes}`; the whole is checked when it is complete."""
    asked = call.query(Blob)
    digest = call.params["digest"]
    if not artifacts.is_digest(digest):
        raise UsageError("the digest is not a SHA-256 in hexadecimal")
    body, store = call.body, call.services.paths.artifacts
    return reply_json(
        {
            "have": await call.services.slow_query(
                _append, store, digest, asked.offset, asked.size, body
            )
        }
    )


def _append(
    _: sqlite3.Connection, store: Path, digest: str, offset: int, size: int, data: bytes
) -> int:
    final = artifacts.blob_path(store, digest)
    if final.exists():
        return size
    store.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = store / f".incoming-{digest}"
    have = draft.stat().st_size if draft.exists() else 0
    if offset != have or not data:
        return min(have, size)
    with draft.open("ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    have += len(data)
    if have >= size:
        found = artifacts.hash_file(draft)[0]
        if found != digest:
            draft.unlink()
            raise UsageError("the bytes do not have this digest", "send the file again")
        final.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft.chmod(0o600)
        draft.rename(final)
    return have


async def put_version(call: Call) -> Reply:
    """Files that are here already become a version of a name."""
    asked = call.read(Version)
    files = [msgspec.to_builtins(entry) for entry in asked.files]
    store = call.services.paths.artifacts
    for entry in asked.files:
        if not artifacts.is_inside(entry.path):
            raise UsageError(f"{entry.path[:200]!r} is no name for a file of an artifact")
        known = entry.digest == artifacts.EMPTY or artifacts.is_digest(entry.digest)
        if not known or (
            entry.digest != artifacts.EMPTY
            and not artifacts.blob_path(store, entry.digest).exists()
        ):
            raise UsageError(f"the bytes of {entry.path[:200]!r} are not here", "send them first")
    now_ns = time.time_ns()

    def work(c: sqlite3.Connection) -> str:
        artifacts.add_version(c, asked.name, asked.type, files, asked.meta, asked.aliases, now_ns)
        digest = artifacts.digest_of(files)
        row = c.execute(
            "SELECT version FROM artifacts WHERE name = ? AND digest = ?", (asked.name, digest)
        ).fetchone()
        return f"{asked.name}:v{row['version']}"

    ref = await call.services.write(work)
    return reply_json(await call.services.query(read_one, ref), 201)


async def remove(call: Call) -> Reply:
    """One version, for good."""
    ref = call.params["ref"]
    found = await call.services.query(read_one, ref)
    await call.services.write(lambda c: artifacts.remove(c, f"{found['name']}:{found['version']}"))
    return reply_json(found)


ROUTES = [
    Route("GET", "/api/artifacts", Role.READ, list_all, answer=list[contract.ArtifactRow]),
    Route("POST", "/api/artifacts", Role.OPERATE, put_version, answer=contract.Artifact),
    Route("GET", "/api/artifacts/{ref}", Role.READ, show, answer=contract.Artifact),
    Route("DELETE", "/api/artifacts/{ref}", Role.OPERATE, remove, answer=contract.Artifact),
    Route("GET", "/api/artifacts/{ref}/file", Role.READ, read_file, answer=contract.Raw),
    Route(
        "POST",
        "/api/artifacts/blobs/{digest}",
        Role.OPERATE,
        put_blob,
        body_bytes_max=ARTIFACT_PIECE_BYTES,
        answer=contract.BlobHave,
    ),
]
