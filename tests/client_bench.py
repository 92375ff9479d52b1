"""A client run with a spool of its own, in this process. Used by the tests of the client."""

import json
from collections.abc import Mapping
from pathlib import Path

from headway.client.run import Run
from headway.spool.files import OS_FILES, Files
from tests import streams


class Bench:
    """A run under a task, and what it warned of."""

    def __init__(
        self, folder: Path, files: Files = OS_FILES, environ: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        folder.mkdir()
        self.write_task()
        self.warned: list[str] = []
        self.environ = {"HEADWAY_SPOOL": str(folder), **(environ or {})}
        self.run = Run(self.environ, files, self.warned.append)
        self.log = self.run.log

    def write_task(self) -> None:
        (self.folder / "task.json").write_text(
            json.dumps({"version": 1, "secret_names": ["LAB_PASS"]})
        )

    def values(self, name: str) -> list[float]:
        return [p.value for p in streams.points(self.folder) if p.name == name]

    def steps(self) -> list[int]:
        return [p.step for p in streams.points(self.folder)]

    def counters(self, *, whole: bool = True) -> dict[str, int]:
        """The counters, checked: they add up, and as many points lie in the streams as were written
        (P5).
        """
        found = self.run.metrics.counters()
        assert found["produced"] == found["written"] + found["rejected"] + found["dropped"]
        assert found["written"] == len(streams.points(self.folder, whole=whole))
        return found
