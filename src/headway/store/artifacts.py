"""Artifacts: files of jobs by their content, with names, versions and lineage. For `fact`, the keeper and the API.

The bytes of a file come as a stream of kind blob; what they are called comes as facts. When all of it is there, the
keeper puts each file under its SHA-256 into `<home>/artifacts`, once, and the list of files becomes a version of its
name. A crash between costs nothing: what waits stays written down until the version is committed.
"""

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.model.errors import NotFoundError, UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import ARTIFACT_FILES_MAX, ARTIFACT_NAME_CHARS_MAX, ARTIFACTS_LISTED_MAX
from headway.store.connection import touch
from headway.store.jsonform import iso, whole
from headway.store.live_write import Origin

Fact = JsonObject
_REMOVED = (
    "removed "  # stands before the number of a version that was removed, in place of its digest
)
_THERE = f"digest NOT LIKE '{_REMOVED}%'"
EMPTY = hashlib.sha256(b"").hexdigest()
_READ_BYTES = 1 << 20
_DIGEST_CHARS = 64


@dataclass(slots=True)
class Waiting:
    """An artifact that a job has told of, and where its bytes come in."""

    job: int
    attempt: int
    task: int
    key: str
    told: Fact
    files: list[Fact] = field(default_factory=list)
    time_ns: int = 0


def valid_name(name: Any) -> str | None:
    good = isinstance(name, str) and 0 < len(name) <= ARTIFACT_NAME_CHARS_MAX
    if not good or not all(char.isalnum() or char in "._-" for char in name) or name in (".", ".."):
        return None
    return str(name)


def put(c: sqlite3.Connection, o: Origin, fact: Fact) -> bool:
    """A part of the list of files of one artifact; the last one has its name."""
    index, files = whole(fact.get("index")), fact.get("files")
    if not isinstance(fact.get("key"), str) or index is None or not isinstance(files, list):
        return False
    if not all(_is_entry(entry) for entry in files):
        return False
    if "name" in fact and valid_name(fact["name"]) is None:
        return False
    c.execute(
        """INSERT INTO artifact_parts (job, attempt, task, key, number, time_ns, data)
           VALUES (:job, :attempt, :task, :key, :number, :now, :data) ON CONFLICT DO NOTHING""",
        {
            "job": o.job, "attempt": o.attempt, "task": o.task, "key": fact["key"][:100], "number": index,
            "now": o.when_ns, "data": json.dumps(fact),
        },
    )  # fmt: skip
    return True


def _is_entry(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("path"), str)
        and is_inside(entry["path"])
        and whole(entry.get("size")) is not None
    )


def is_inside(path: str) -> bool:
    """Whether a file of an artifact may have this name: it is written below a folder of somebody's later on."""
    parts = path.split("/")
    return (
        0 < len(path) <= 4096
        and "\0" not in path
        and not any(part in ("", ".", "..") for part in parts)
    )


def put_use(c: sqlite3.Connection, o: Origin, fact: Fact) -> bool:
    """`{ref}`: this job has read that version."""
    try:
        row = find(c, str(fact.get("ref")))
    except (NotFoundError, UsageError):
        return False
    note_use(c, row["pk"], o.job, "used", o.attempt, None, o.when_ns)
    return True


# -- from what came in to a version ------------------------------------------------------------------------------------


def waiting(c: sqlite3.Connection) -> list[Waiting]:
    """What is told in full and has all its bytes here, or will get no more of them."""
    found: dict[tuple[int, int, str], Waiting] = {}
    for row in c.execute(
        "SELECT * FROM artifact_parts ORDER BY job, task, key, number LIMIT 20000"
    ):
        fact = json.loads(row["data"])
        key = (row["job"], row["task"], row["key"])
        one = found.setdefault(
            key, Waiting(row["job"], row["attempt"], row["task"], row["key"], {})
        )
        one.files += fact["files"]
        one.time_ns = row["time_ns"]
        if "name" in fact:
            one.told = fact
    return [one for one in found.values() if one.told and _has_all(c, one)]


def _has_all(c: sqlite3.Connection, one: Waiting) -> bool:
    if (
        c.execute("SELECT result FROM tasks WHERE pk = :pk", {"pk": one.task}).fetchone()["result"]
        is not None
    ):
        return True
    rows = c.execute(
        "SELECT name, position FROM streams WHERE task = :pk AND kind = 'blob'", {"pk": one.task}
    )
    have = {row["name"]: int(row["position"]) for row in rows}
    return all(
        have.get(entry["stream"], -1) >= entry["size"] for entry in one.files if entry.get("stream")
    )


def folder_of(c: sqlite3.Connection, task: int) -> str:
    """Where the streams of a task lie, below the folder of logs."""
    row = c.execute(
        """SELECT j.uuid, a.number, t.name FROM tasks t JOIN attempts a ON a.pk = t.attempt JOIN jobs j ON j.pk = a.job
           WHERE t.pk = :pk""",
        {"pk": task},
    ).fetchone()
    return f"{row['uuid']}/{row['number']}/{row['name']}"


def keep_files(one: Waiting, folder: Path, store: Path) -> list[Fact]:
    """The files of an artifact under their digests. One whose bytes never came is told as lost, with the rest kept."""
    found = []
    for entry in one.files:
        kept = {
            "path": entry["path"],
            "size": entry["size"],
            "digest": EMPTY,
            "mode": whole(entry.get("mode")) or 0o644,
        }
        if entry.get("stream"):
            try:
                kept["digest"], size = keep_file(
                    folder / str(entry["stream"]), store, entry["size"]
                )
            except OSError:
                kept["lost"] = True
                size = 0
            if size != entry["size"]:
                kept["size"], kept["changed"] = (
                    size,
                    True,
                )  # it was written to after it was put here
        found.append(kept)
    return found


def keep_file(path: Path, store: Path, length: int | None = None) -> tuple[str, int]:
    """Put a file under its digest; (digest, size). The file stays where it is. Raises OSError."""
    digest, size = hash_file(path, length)
    target = blob_path(store, digest)
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = target.with_name(f".{digest}.{os.getpid()}.tmp")
        if length is not None and path.stat().st_size != size:
            _copy(path, draft, size)
        else:
            draft.unlink(missing_ok=True)
            os.link(path, draft)
        os.chmod(draft, 0o600)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.rename(target)
    return digest, size


def _copy(path: Path, target: Path, size: int) -> None:
    with path.open("rb") as source, target.open("wb") as out:
        while size and (part := source.read(min(size, _READ_BYTES))):
            out.write(part)
            size -= len(part)


def hash_file(path: Path, length: int | None = None) -> tuple[str, int]:
    hasher, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while part := file.read(_READ_BYTES if length is None else min(_READ_BYTES, length - size)):
            hasher.update(part)
            size += len(part)
    return hasher.hexdigest(), size


def blob_path(store: Path, digest: str) -> Path:
    return store / digest[:2] / digest


def digest_of(files: Iterable[Fact]) -> str:
    """Of a list of files: names and contents, in whatever order they came."""
    rows = sorted([entry["path"], entry["digest"]] for entry in files)
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def collect(c: sqlite3.Connection, one: Waiting, files: list[Fact], now_ns: int) -> None:
    """What waited becomes a version, in the caller's transaction."""
    told = one.told
    aliases = [word for word in told.get("aliases") or [] if isinstance(word, str)]
    meta = told["meta"] if isinstance(told.get("meta"), dict) else {}
    pk = add_version(
        c, told["name"], str(told.get("artifact_type") or "file"), files, meta, aliases, one.time_ns
    )
    note_use(c, pk, one.job, "made", one.attempt, whole(told.get("step")), one.time_ns)
    c.execute(
        "DELETE FROM artifact_parts WHERE job = :job AND task = :task AND key = :key",
        {"job": one.job, "task": one.task, "key": one.key},
    )
    touch(c, one.job, "artifacts")


def add_version(
    c: sqlite3.Connection,
    name: str,
    type_: str,
    files: list[Fact],
    meta: Fact,
    aliases: list[str],
    now_ns: int,
) -> int:
    """The version of this name with these files: a new one, or the one that has just them."""
    if valid_name(name) is None:
        raise UsageError(f"{name[:60]!r} is no name for an artifact", "letters, digits and . _ -")
    if len(files) > ARTIFACT_FILES_MAX:
        raise UsageError(
            f"an artifact has at most {ARTIFACT_FILES_MAX} files", "pack them, or put fewer"
        )
    digest = digest_of(files)
    row = c.execute(
        "SELECT pk FROM artifacts WHERE name = :name AND digest = :digest",
        {"name": name, "digest": digest},
    )
    known = row.fetchone()
    if known is not None:
        pk = int(known["pk"])
    else:
        cursor = c.execute(
            """INSERT INTO artifacts (name, version, digest, type, size, files, meta, created_ns) VALUES (:name,
                 (SELECT coalesce(max(version) + 1, 0) FROM artifacts WHERE name = :name), :digest, :type, :size,
                 :files, :meta, :now)""",
            {
                "name": name, "digest": digest, "type": type_[:64], "now": now_ns, "files": json.dumps(files),
                "size": sum(entry["size"] for entry in files), "meta": json.dumps(meta),
            },
        )  # fmt: skip
        pk = int(cursor.lastrowid or 0)
    for alias in dict.fromkeys(["latest", *aliases]):
        if valid_name(alias) is not None:
            c.execute(
                """INSERT INTO artifact_aliases (name, alias, artifact) VALUES (:name, :alias, :pk)
                   ON CONFLICT (name, alias) DO UPDATE SET artifact = excluded.artifact""",
                {"name": name, "alias": alias, "pk": pk},
            )
    return pk


def note_use(
    c: sqlite3.Connection, pk: int, job: int, role: str, attempt: int, step: int | None, now_ns: int
) -> None:
    c.execute(
        """INSERT INTO artifact_uses (artifact, job, role, attempt, step, time_ns)
           VALUES (:pk, :job, :role, :attempt, :step, :now) ON CONFLICT DO NOTHING""",
        {"pk": pk, "job": job, "role": role, "attempt": attempt, "step": step, "now": now_ns},
    )


# -- reading -----------------------------------------------------------------------------------------------------------


def find(c: sqlite3.Connection, ref: str) -> sqlite3.Row:
    """`NAME`, `NAME:vN`, `NAME:ALIAS`. Raises NotFoundError with what there is."""
    name, _, version = ref.partition(":")
    version = version or "latest"
    if version[:1] == "v" and version[1:].isdigit():
        row = c.execute(
            f"SELECT * FROM artifacts WHERE name = :name AND version = :version AND {_THERE}",  # noqa: S608  (our own words)
            {"name": name, "version": int(version[1:])},
        ).fetchone()
    else:
        row = c.execute(
            """SELECT a.* FROM artifact_aliases l JOIN artifacts a ON a.pk = l.artifact
               WHERE l.name = :name AND l.alias = :alias""",
            {"name": name, "alias": version},
        ).fetchone()
    if row is None:
        known = c.execute(
            f"SELECT count(*) FROM artifacts WHERE name = :name AND {_THERE}",  # noqa: S608  (our own words)
            {"name": name},
        ).fetchone()[0]
        hint = f"hw artifacts ls {name}" if known else "hw artifacts ls"
        raise NotFoundError(f"there is no artifact {ref[:200]!r}", hint)
    found: sqlite3.Row = row
    return found


def listing(
    c: sqlite3.Connection, name: str | None = None, type_: str | None = None, job: int | None = None
) -> list[Fact]:
    """Newest first."""
    rows = c.execute(
        f"""SELECT * FROM artifacts a WHERE {_THERE} AND (:name IS NULL OR name = :name)
             AND (:type IS NULL OR type = :type)
             AND (:job IS NULL OR EXISTS (SELECT 1 FROM artifact_uses u WHERE u.artifact = a.pk AND u.job = :job))
           ORDER BY created_ns DESC, pk DESC LIMIT :limit""",  # noqa: S608  (our own words)
        {"name": name, "type": type_, "job": job, "limit": ARTIFACTS_LISTED_MAX},
    ).fetchall()
    return [shown(c, row) for row in rows]


def shown(c: sqlite3.Connection, row: sqlite3.Row, *, whole_list: bool = False) -> Fact:
    """One version, with who made and used it; `whole_list`: with its files."""
    uses = c.execute(
        """SELECT u.role, j.id FROM artifact_uses u JOIN jobs j ON j.pk = u.job WHERE u.artifact = :pk
           ORDER BY u.time_ns""",
        {"pk": row["pk"]},
    ).fetchall()
    aliases = c.execute(
        "SELECT alias FROM artifact_aliases WHERE artifact = :pk ORDER BY alias", {"pk": row["pk"]}
    )
    files = json.loads(row["files"])
    return {
        "name": row["name"], "version": f"v{row['version']}", "aliases": [found["alias"] for found in aliases],
        "type": row["type"], "size": row["size"], "files": files if whole_list else len(files),
        "digest": row["digest"], "created_at": iso(row["created_ns"]), "meta": json.loads(row["meta"]),
        "made_by": [use["id"] for use in uses if use["role"] == "made"],
        "used_by": [use["id"] for use in uses if use["role"] == "used"],
    }  # fmt: skip


def remove(c: sqlite3.Connection, ref: str) -> sqlite3.Row:
    """One version, for good; its number is not given again. Its files stay until `hw gc`, others may
    have them. Returns what it was.
    """
    row = find(c, ref)
    values = {"pk": row["pk"], "name": row["name"], "gone": f"{_REMOVED}{row['version']}"}
    c.execute(
        "UPDATE artifacts SET digest = :gone, files = '[]', size = 0, meta = '{}' WHERE pk = :pk",
        values,
    )
    c.execute("DELETE FROM artifact_aliases WHERE artifact = :pk", values)
    c.execute("DELETE FROM artifact_uses WHERE artifact = :pk", values)
    c.execute(
        f"""INSERT INTO artifact_aliases (name, alias, artifact)
            SELECT name, 'latest', pk FROM artifacts WHERE name = :name AND {_THERE}
            ORDER BY version DESC LIMIT 1 ON CONFLICT DO NOTHING""",  # noqa: S608  (our own words)
        values,
    )
    return row


def is_digest(text: str) -> bool:
    return len(text) == _DIGEST_CHARS and set(text) <= set("0123456789abcdef")


def unused_blobs(c: sqlite3.Connection, store: Path, since_s: float) -> list[tuple[Path, int]]:
    """Files that no version has any more, with their sizes; for `hw gc`. Those that came or were
    linked after `since_s` may wait for their version.
    """
    found = []
    for path in store.glob("??/*"):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        if status.st_ctime < since_s:
            found.append((path, status.st_size))
    used = {
        entry["digest"]
        for row in c.execute("SELECT files FROM artifacts")
        for entry in json.loads(row["files"])
    }
    return [(path, size) for path, size in found if path.name not in used]
