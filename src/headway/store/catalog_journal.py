"""A second record of the catalog, beside the database: what jobs were, since the last snapshot.

A snapshot is up to an hour old. Without this, a restore would forget what has run since, and run it
again. So after each commit that changes a job, a thread of its own appends that job's rows (job,
attempts, tasks, tokens; not its data) as one line with a checksum. Where the database had to be
restored, or has lost its write-ahead log, `replay` brings the catalog to the last line. Lines are not
synced: they survive the death of the server, not a power cut. About JOURNAL_PAUSE_S may be missing.
"""

import base64
import json
import logging
import os
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.model.json_types import JsonObject
from headway.model.limits import JOURNAL_BYTES_MAX, JOURNAL_PAUSE_S
from headway.store.catalog import token_range

log = logging.getLogger("headway.store")
_SOME = 400
_LEFT_OUT = {"provenance"}  # large, and of the data
# What is large and seldom changes stands in the first line of a job only.
_FIRST_LINE_ONLY = ("spec", "config", "config_attempt", "config_rank")
Image = JsonObject


@dataclass(slots=True)
class Replayed:
    """What a replay did."""

    jobs: int = 0  # whose rows were changed or made
    made: int = 0  # of them, that the database did not know
    damaged: int = 0  # lines that could not be read

    def __str__(self) -> str:
        words = f"{self.jobs} jobs were brought up to date by the journal, {self.made} of them anew"
        return f"{words}; {self.damaged} of its lines were damaged" if self.damaged else words


class Journal:
    """Written by one thread; `note` may be called from any."""

    def __init__(
        self, db: Path, read: Callable[[], AbstractContextManager[sqlite3.Connection]]
    ) -> None:
        self._db, self._read = db, read
        self._lock, self._turn = threading.Lock(), threading.Lock()
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._changed: set[int] = set()
        self._known: set[int] = set()  # whose first line stands in this journal already
        self._number = max((_number(path) for path in files(db)), default=0) or 1
        self._bytes_max = JOURNAL_BYTES_MAX
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="headway-journal", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self.flush()

    def note(self, jobs: Iterable[int]) -> None:
        with self._lock:
            self._changed.update(jobs)
        self._wake.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.wait()
            self._stopped.wait(JOURNAL_PAUSE_S)  # what comes in the meantime goes with it
            self._wake.clear()
            self.flush()

    def flush(self) -> None:
        """Write down what has changed. A disk that takes nothing costs the journal, not the server."""
        with self._turn:
            with self._lock:
                changed, self._changed = sorted(self._changed), set()
            if not changed:
                return
            try:
                with self._read() as c:
                    lines = [_line(image) for image in images(c, changed, self._known)]
                size = self._append(b"".join(lines))
                self._known.update(changed)
                if size > self._bytes_max:
                    self._shorten()
            # whatever it was (a full disk, a damaged database), it is tried again with the next change
            except Exception as error:
                log.warning("the journal of the catalog could not be written: %s", error)
                with self._lock:
                    self._changed.update(changed)

    def _append(self, data: bytes) -> int:
        """How large the file is now."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(path_of(self._db, self._number), flags, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            return os.fstat(fd).st_size
        finally:
            os.close(fd)

    def _shorten(self) -> None:
        """Keep the last line of each job only, in a file of its own that then replaces the others."""
        old, self._number = self._number, self._number + 1
        merged, _ = last_images(self._db)
        size = self._append(b"".join(_line(image) for image in merged.values()))
        self.drop(old)
        self._bytes_max = max(JOURNAL_BYTES_MAX, 2 * size)

    def begin_next(self) -> int:
        """Before a snapshot: what changes from now on goes to another file. Returns the number up to
        which files are of no use once the snapshot is there.
        """
        self.flush()
        with self._turn:
            old, self._number = self._number, self._number + 1
            self._known.clear()
        return old

    def drop(self, number: int) -> None:
        for path in files(self._db):
            if _number(path) <= number:
                path.unlink(missing_ok=True)


def path_of(db: Path, number: int) -> Path:
    return db.with_name(f"{db.name}.journal-{number:08d}")


def files(db: Path) -> list[Path]:
    return sorted(path for path in db.parent.glob(f"{db.name}.journal-*") if _number(path))


def _number(path: Path) -> int:
    text = path.name.rpartition("-")[2]
    return int(text) if text.isdecimal() else 0


# -- lines


def _line(image: Image) -> bytes:
    data = json.dumps(image, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(data), data)


def lines(db: Path) -> Iterator[Image | None]:
    """Of all files, oldest first; None for one that cannot be read."""
    for path in files(db):
        try:
            data = path.read_bytes()
        except OSError:
            yield None
            continue
        for line in data.split(b"\n"):
            if line:
                yield _parsed(line)


def _parsed(line: bytes) -> Image | None:
    checksum, _, data = line.partition(b" ")
    try:
        if int(checksum, 16) != zlib.crc32(data):
            return None
        image = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return image if isinstance(image, dict) and isinstance(image.get("job"), dict) else None


def images(c: sqlite3.Connection, keys: list[int], known: set[int]) -> Iterator[Image]:
    """The rows of these jobs; without spec and config for those whose first line is written."""
    for start in range(0, len(keys), _SOME):
        some = keys[start : start + _SOME]
        marks = ", ".join("?" * len(some))
        jobs = _rows(c, f"SELECT * FROM jobs WHERE pk IN ({marks})", some)  # noqa: S608  (our own words)
        attempts = _rows(c, f"SELECT * FROM attempts WHERE job IN ({marks}) ORDER BY number", some)  # noqa: S608  (our own words)
        below = f"SELECT pk FROM attempts WHERE job IN ({marks})"  # noqa: S608  (our own words)
        tasks = _rows(c, f"SELECT * FROM tasks WHERE attempt IN ({below}) ORDER BY pk", some)  # noqa: S608  (our own words)
        for job in jobs:
            mine = [attempt for attempt in attempts if attempt["job"] == job["pk"]]
            numbers = {attempt["pk"]: attempt["number"] for attempt in mine}
            image: Image = {
                "job": {name: value for name, value in job.items() if name not in _LEFT_OUT},
                "attempts": mine,
                "tasks": [
                    task | {"number": numbers[task["attempt"]]}
                    for task in tasks
                    if task["attempt"] in numbers
                ],
                "tokens": _rows(
                    c,
                    "SELECT * FROM tokens WHERE task >= :low AND task < :high",
                    token_range(job["uuid"]),
                ),
            }
            if job["array"] is not None:
                image["array"] = _rows(c, "SELECT * FROM arrays WHERE uuid = ?", [job["array"]])
            if job["pk"] in known:
                for name in _FIRST_LINE_ONLY:
                    del image["job"][name]
                image.pop("array", None)
            yield image


def _rows(c: sqlite3.Connection, query: str, values: Any) -> list[JsonObject]:
    return [
        {name: _plain(row[name]) for name in row.keys()}  # noqa: SIM118  (of an sqlite3.Row)
        for row in c.execute(query, values)
    ]


def _plain(value: object) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _stored(value: object) -> object:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value


def last_images(db: Path) -> tuple[dict[str, Image], int]:
    """What the journal last said of each job, by uuid, and how many lines could not be read."""
    last: dict[str, Image] = {}
    damaged = 0
    for image in lines(db):
        if image is None:
            damaged += 1
            continue
        uuid = str(image["job"].get("uuid"))
        before = last.get(uuid, {"job": {}})
        last[uuid] = {**before, **image, "job": {**before["job"], **image["job"]}}
    return last, damaged


# -- after a restore


def replay(c: sqlite3.Connection, db: Path) -> Replayed:
    """Bring the catalog to what the journal last said. In one transaction of the writer."""
    last, damaged = last_images(db)
    found = Replayed(damaged=damaged)
    for image in last.values():
        c.execute("SAVEPOINT image")
        try:
            _apply(c, image, found)
        # a line that does not fit the database costs its job only
        except (sqlite3.Error, KeyError, TypeError, ValueError) as error:
            c.execute("ROLLBACK TO image")
            found.damaged += 1
            log.error("the journal's rows of %s do not fit: %s", image["job"].get("id"), error)
        c.execute("RELEASE image")
    return found


def _apply(c: sqlite3.Connection, image: Image, found: Replayed) -> None:
    job = image["job"]
    for array in image.get("array") or ():
        _put(c, "arrays", array, "uuid")
    row = c.execute("SELECT pk FROM jobs WHERE uuid = ?", (job["uuid"],)).fetchone()
    if row is None:
        if "spec" not in job:
            raise ValueError("its first line is missing")
        taken = c.execute("SELECT 1 FROM jobs WHERE pk = ?", (job["pk"],)).fetchone()
        _insert(c, "jobs", {k: v for k, v in job.items() if k != "pk" or taken is None})
        row = c.execute("SELECT pk FROM jobs WHERE uuid = ?", (job["uuid"],)).fetchone()
        if row is None:
            raise ValueError("its suffix is another's")
        found.made += 1
    else:
        _update(c, "jobs", row["pk"], {k: v for k, v in job.items() if k not in ("pk", "uuid")})
    found.jobs += 1
    pk = int(row["pk"])
    for attempt in image["attempts"]:
        values = {k: v for k, v in attempt.items() if k != "pk"} | {"job": pk}
        _put(c, "attempts", values, "key")
    for task in image["tasks"]:
        attempt = c.execute(
            "SELECT pk FROM attempts WHERE job = ? AND number = ?", (pk, task["number"])
        ).fetchone()
        values = {k: v for k, v in task.items() if k not in ("pk", "number")}
        values["attempt"] = attempt["pk"]
        known = c.execute(
            "SELECT pk FROM tasks WHERE attempt = ? AND name = ?", (attempt["pk"], task["name"])
        ).fetchone()
        if known is None:
            _insert(c, "tasks", values)
        else:
            _update(c, "tasks", known["pk"], values)
    for token in image["tokens"]:
        _put(c, "tokens", token, "id")


def _put(c: sqlite3.Connection, table: str, values: JsonObject, key: str) -> None:
    columns = ", ".join(values)
    marks = ", ".join("?" * len(values))
    sets = ", ".join(f"{name} = excluded.{name}" for name in values if name != key)
    c.execute(
        f"INSERT INTO {table} ({columns}) VALUES ({marks}) ON CONFLICT ({key}) DO UPDATE SET {sets}",  # noqa: S608  (names of our own schema)
        [_stored(value) for value in values.values()],
    )


def _insert(c: sqlite3.Connection, table: str, values: JsonObject) -> None:
    marks = ", ".join("?" * len(values))
    c.execute(
        f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})",  # noqa: S608  (names of our own schema)
        [_stored(value) for value in values.values()],
    )


def _update(c: sqlite3.Connection, table: str, pk: int, values: JsonObject) -> None:
    sets = ", ".join(f"{name} = ?" for name in values)
    c.execute(
        f"UPDATE {table} SET {sets} WHERE pk = ?",  # noqa: S608  (names of our own schema)
        [*(_stored(value) for value in values.values()), pk],
    )
