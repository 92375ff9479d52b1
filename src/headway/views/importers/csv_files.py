"""CSV: one file is one run; a column named step, iteration, epoch or global_step is the step, one named time or
timestamp the time, and every other column that holds numbers is a metric."""

import csv
import io
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from headway.views.importers.imported_run import ImportedRun, MixedStream, NotThisKind
from headway.views.importers.source_files import open_plain

STEPS = ("step", "global_step", "iteration", "iter", "_step", "epoch")
TIMES = ("time", "timestamp", "wall_time", "_timestamp", "wall time", "date")
Row = tuple[tuple[str, ...], int, int, list[float]]


def read_csv(path: Path) -> Iterator[ImportedRun]:
    if not path.is_file() or path.suffix.lower() not in (".csv", ".tsv"):
        raise NotThisKind
    changed_ns = max(1, path.stat().st_mtime_ns)
    run = ImportedRun(str(path.resolve()), path.stem, "csv", changed_ns, changed_ns)
    rows = list(_rows(run, path, changed_ns))
    times = [time_ns for _, _, time_ns, _ in rows if time_ns != changed_ns]
    if times:
        run.started_ns, run.ended_ns = max(1, min(times)), max(times)
    run.streams.append(MixedStream("rows", iter(rows)))
    yield run


def _rows(run: ImportedRun, path: Path, changed_ns: int) -> Iterator[Row]:
    bad: dict[str, int] = {}
    with (
        open_plain(path, path) as raw,
        io.TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline="") as file,
    ):
        first = file.readline(64 * 1024)
        file.seek(0)
        split = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=first.count)
        reader = csv.reader(file, delimiter=split)
        try:
            heads = [head.strip() for head in next(reader, [])]
        except csv.Error as error:
            run.skipped.append(f"{path}: {error}")
            return
        lower = [head.lower() for head in heads]
        step_at = next((lower.index(name) for name in STEPS if name in lower), None)
        time_at = next((lower.index(name) for name in TIMES if name in lower), None)
        try:
            for number, cells in enumerate(reader):
                step, time_ns, values = number, changed_ns, dict[str, float]()
                for at, cell in enumerate(cells[: len(heads)]):
                    try:
                        if not cell.strip():
                            continue
                        if at == time_at:
                            time_ns = _time(cell)
                        elif at == step_at:
                            step = int(float(cell))
                        else:
                            values[heads[at] or f"column {at}"] = float(cell)
                    except (ValueError, OverflowError):
                        bad[heads[at]] = bad.get(heads[at], 0) + 1
                if values and -(2**62) <= step <= 2**62:
                    yield tuple(values), step, time_ns, list(values.values())
        except csv.Error as error:
            run.skipped.append(f"{path}: from line {reader.line_num} on: {error}")
    run.skipped += [
        f"{path}: column {name!r}: {count} cells that are no numbers" for name, count in bad.items()
    ]


def _time(text: str) -> int:
    try:
        seconds = float(text)
    except ValueError:
        seconds = datetime.fromisoformat(text.strip()).timestamp()
    if seconds > 1e11:
        seconds /= 1000  # milliseconds
    if not 0 < seconds < 4e9:
        raise ValueError(text)
    return int(seconds * 1e9)
