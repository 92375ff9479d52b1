"""Metrics of jobs as TensorBoard event files: a folder for each job, and in it for each further
rank. Called by `hw tensorboard`, again and again while jobs run.

Only points that are newer than the last ones written of their series are appended, so that the same
answer twice writes nothing. A further attempt goes on in the same file, behind the mark of a
restart, at which TensorBoard forgets the steps that are done again.
"""

import math
import os
import time
from pathlib import Path
from typing import Final

from headway.model.json_types import JsonObject
from headway.views.console.widgets.curve import real
from headway.views.text import format as fmt
from headway.wire.tfevents import event, first_event, record, restart_event

_FLOAT_MAX: Final = 3.4028234e38
Series = dict[str, list[JsonObject]]  # of /api/jobs/{ref}/metrics, by name


class EventFolder:
    def __init__(self, top: Path) -> None:
        self.top = top
        self._written_s: dict[tuple[str, int, int, str], float] = {}
        self._files: dict[Path, Path] = {}
        self._attempts: dict[Path, int] = {}  # whose points were written last

    def add(self, job: str, series: Series) -> int:
        """What is new of a job; how many points."""
        entries = [(name, entry) for name, found in series.items() for entry in found]
        entries.sort(key=lambda one: one[1]["attempt"])  # stable: names keep their order
        lowest = min((entry["rank"] for _, entry in entries), default=0)
        parts: dict[Path, list[bytes]] = {}
        points = 0
        for name, entry in entries:
            folder = self.top / job
            if entry["rank"] > lowest:
                folder = folder / f"rank{entry['rank']}"
            key = (job, entry["attempt"], entry["rank"], name)
            rows = parts.setdefault(folder, [])
            if entry["attempt"] > self._attempts.setdefault(folder, entry["attempt"]):
                self._attempts[folder] = entry["attempt"]
                rows.append(record(restart_event(time.time(), _first_step(entries, entry))))
            before = self._written_s.get(key, -math.inf)
            for step, moment, value in zip(
                entry["step"], entry["time"], entry["value"], strict=True
            ):
                at = fmt.moment(moment)
                number = real(value)
                if at is None or number is None or at.timestamp() <= before:
                    continue
                self._written_s[key] = at.timestamp()
                rows.append(record(event(at.timestamp(), int(step), {name: _fitting(number)})))
                points += 1
        for folder, rows in parts.items():
            if rows:
                self._append(folder, b"".join(rows))
        return points

    def _append(self, folder: Path, data: bytes) -> None:
        path = self._files.get(folder)
        if path is None:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"events.out.tfevents.{int(time.time())}.headway.{os.getpid()}"
            data = record(first_event(time.time())) + data
            self._files[folder] = path
        with path.open("ab") as file:
            file.write(data)


def _first_step(entries: list[tuple[str, JsonObject]], of: JsonObject) -> int:
    """Where the attempt and rank of `of` began."""
    where = (of["attempt"], of["rank"])
    steps = [
        min(entry["step"])
        for _, entry in entries
        if (entry["attempt"], entry["rank"]) == where and entry["step"]
    ]
    return int(min(steps, default=0))


def _fitting(value: float) -> float:
    """Scalars are single precision there."""
    if math.isfinite(value) and abs(value) > _FLOAT_MAX:
        return math.copysign(math.inf, value)
    return value
