"""A package that is not installed, as `importlib.metadata` sees one: name and version, no files."""

from __future__ import annotations

from importlib.metadata import Distribution

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Stand(Distribution):
    """`entry_points` is the text of an `entry_points.txt`."""

    def __init__(self, name: str, version: str, entry_points: str = "") -> None:
        self._texts = {
            "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            "entry_points.txt": entry_points,
        }

    def read_text(self, filename: str) -> "str | None":
        return self._texts.get(filename)

    def locate_file(self, path: object) -> "Any":
        from pathlib import Path

        return Path(str(path))
