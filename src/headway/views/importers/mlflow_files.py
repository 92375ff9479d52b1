"""MLflow stores: folders of files (`mlruns/`) and SQLite databases, read without mlflow and never written."""

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from headway.views.importers.imported_run import ImportedRun, NotThisKind, Point, PointStream
from headway.views.importers.source_files import open_plain, read_text

_STATES = {"FINISHED": "succeeded", "FAILED": "failed", "KILLED": "stopped"}
_NUMBERED = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
_LINE = re.compile(r"\s*([A-Za-z_][\w.]*):\s*(.*?)\s*\Z")
_LINE_BYTES_MAX = 64 * 1024
_TABLES = ("experiments", "runs", "params", "tags", "metrics")


def read_mlflow(top: Path) -> Iterator[ImportedRun]:
    if top.is_file():
        with top.open("rb") as file:
            if file.read(16) != b"SQLite format 3\0":
                raise NotThisKind
        yield from _read_sqlite(top)
        return
    if not top.is_dir():
        raise NotThisKind
    runs = sorted({*top.glob("*/*/meta.yaml"), *top.glob("mlruns/*/*/meta.yaml")})
    runs = [meta for meta in runs if (meta.parent.parent / "meta.yaml").is_file()]
    if not runs and (top / "meta.yaml").is_file():
        runs = sorted(top.glob("*/meta.yaml")) or [top / "meta.yaml"]
    if not runs:
        database = top / "mlflow.db"
        if not database.is_file():
            raise NotThisKind
        yield from read_mlflow(database)
        return
    for meta in runs:
        if meta.parent.parent.name not in (".trash", "models"):
            yield _read_folder(meta.parent, top)


def _meta(path: Path, top: Path) -> dict[str, str]:
    """MLflow's own meta files are flat: `name: value`. Nothing else of YAML is read."""
    found = {}
    for line in read_text(path, top).splitlines():
        match = _LINE.match(line)
        if match and not line.startswith(" "):
            found[match[1]] = match[2].strip("'\"")
    return found


def _read_folder(folder: Path, top: Path) -> ImportedRun:
    run = ImportedRun(folder.name, folder.name, "mlflow", 1, 1)
    try:
        meta = _meta(folder / "meta.yaml", top)
    except OSError as error:
        run.skipped.append(f"{folder}: {error.strerror}")
        meta = {}
    run.key = meta.get("run_id") or meta.get("run_uuid") or folder.name
    _head(
        run,
        meta.get("run_name"),
        meta.get("status"),
        meta.get("start_time"),
        meta.get("end_time"),
        meta.get("user_id"),
    )
    try:
        run.experiment = _meta(folder.parent / "meta.yaml", top).get("name")
    except OSError:
        run.experiment = None
    run.config = {name: _number(text) for name, text in _texts(run, folder / "params", top)}
    _tags(run, dict(_texts(run, folder / "tags", top)))
    metrics = folder / "metrics"
    for place, inner, names in os.walk(metrics):
        inner.sort()
        for name in sorted(names):
            path = Path(place, name)
            series = str(path.relative_to(metrics))
            run.streams.append(PointStream(series, (series,), _lines(run, path, top)))
    if (folder / "artifacts").is_dir() and any((folder / "artifacts").iterdir()):
        run.artifacts.append((f"{run.name}-files", str(folder / "artifacts")))
    return run


def _texts(run: ImportedRun, folder: Path, top: Path) -> Iterator[tuple[str, str]]:
    for place, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(place, name)
            try:
                yield str(path.relative_to(folder)), read_text(path, top, 64 * 1024)
            except OSError as error:
                run.skipped.append(f"{path}: {error.strerror}")


def _lines(run: ImportedRun, path: Path, top: Path) -> Iterator[Point]:
    """`time value [step]`, a line each."""
    bad = 0
    try:
        with open_plain(path, top) as file:
            for line in iter(lambda: file.readline(_LINE_BYTES_MAX), b""):
                words = line.split()
                try:
                    time_ns, value = int(words[0]) * 10**6, float(words[1])
                    step = int(words[2]) if len(words) > 2 else 0
                except (ValueError, IndexError):
                    bad += 1
                    continue
                if -(2**62) <= step <= 2**62 and 0 <= time_ns < 2**62:
                    run.ended_ns = max(run.ended_ns, time_ns)
                    yield step, time_ns, [value]
                else:
                    bad += 1
    except OSError as error:
        run.skipped.append(f"{path}: {error.strerror}")
    if bad:
        run.skipped.append(f"{path}: {bad} lines that are no points")


def _head(
    run: ImportedRun, name: object, status: object, start: object, end: object, user: object
) -> None:
    run.name = str(name or run.name)
    told = str(status or "")
    word = _NUMBERED.get(int(told), "") if re.fullmatch(r"[0-9]{1,4}", told) else told
    run.state = _STATES.get(word, "stopped")
    run.started_ns = max(1, _millis(start))
    run.ended_ns = max(run.started_ns, _millis(end))
    run.user = str(user or "")


def _millis(value: Any) -> int:
    try:
        found = int(value)
    except (TypeError, ValueError):
        return 0
    return found * 10**6 if 0 < found < 4 * 10**12 else 0


def _tags(run: ImportedRun, tags: dict[str, str]) -> None:
    run.command = [tags["mlflow.source.name"]] if tags.get("mlflow.source.name") else []
    run.name = tags.get("mlflow.runName") or run.name
    run.user = run.user or tags.get("mlflow.user", "")
    for name, text in tags.items():
        if not name.startswith("mlflow."):
            run.tags.append(f"{name}={text}"[:128])


def _number(text: str) -> Any:
    """Parameters of MLflow are texts; those that are numbers or truth values are kept as such."""
    if text in ("True", "False"):
        return text == "True"
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _read_sqlite(path: Path) -> Iterator[ImportedRun]:
    with closing(sqlite3.connect(f"file:{path.resolve()}?mode=ro", uri=True)) as c:
        c.row_factory = sqlite3.Row
        try:
            _check_tables(c, path)
            rows = c.execute(
                """SELECT r.*, e.name AS experiment_name FROM runs r JOIN experiments e USING (experiment_id)
                   ORDER BY r.start_time"""
            ).fetchall()
        except sqlite3.DatabaseError as error:
            raise NotThisKind(f"{path} is a database, but not MLflow's: {error}") from None
        for row in rows:
            yield _read_row(c, row)


def _check_tables(c: sqlite3.Connection, path: Path) -> None:
    """A view under the name of a table could compute for ever."""
    c.execute("PRAGMA trusted_schema = OFF")
    rows = c.execute("SELECT name, type FROM sqlite_master")
    kinds = {str(row["name"]): str(row["type"]) for row in rows}
    wrong = [name for name in _TABLES if kinds.get(name, "table") != "table"]
    if wrong:
        raise NotThisKind(f"{path} is not as MLflow makes it: {wrong[0]} is no table")


def _read_row(c: sqlite3.Connection, row: sqlite3.Row) -> ImportedRun:
    key = str(row["run_uuid"])
    run = ImportedRun(key, key, "mlflow", 1, 1)
    keys = row.keys()
    _head(
        run,
        row["name"] if "name" in keys else None,
        row["status"],
        row["start_time"],
        row["end_time"],
        row["user_id"],
    )
    run.experiment = str(row["experiment_name"] or "") or None
    try:
        found = c.execute(
            "SELECT key, value FROM params WHERE run_uuid = ? ORDER BY key", (key,)
        ).fetchall()
        run.config = {str(one["key"]): _number(str(one["value"])) for one in found}
        found = c.execute(
            "SELECT key, value FROM tags WHERE run_uuid = ? ORDER BY key", (key,)
        ).fetchall()
        _tags(run, {str(one["key"]): str(one["value"]) for one in found})
        names = c.execute(
            "SELECT DISTINCT key FROM metrics WHERE run_uuid = ? ORDER BY key", (key,)
        ).fetchall()
        for one in names:
            run.streams.append(
                PointStream(str(one["key"]), (str(one["key"]),), _points(c, run, str(one["key"])))
            )
    except sqlite3.DatabaseError as error:
        run.skipped.append(f"{run.name}: the database cannot be read: {error}")
    return run


def _points(c: sqlite3.Connection, run: ImportedRun, name: str) -> Iterator[Point]:
    rows = c.execute(
        "SELECT value, timestamp, step, is_nan FROM metrics WHERE run_uuid = ? AND key = ? ORDER BY rowid",
        (run.key, name),
    )
    bad = 0
    for row in rows:
        try:
            value = float("nan") if row["is_nan"] else float(row["value"])
            step = int(row["step"] or 0)
        except (TypeError, ValueError, OverflowError):
            bad += 1
            continue
        yield step, _millis(row["timestamp"]), [value]
    if bad:
        run.skipped.append(f"{name}: {bad} rows that are no points")
