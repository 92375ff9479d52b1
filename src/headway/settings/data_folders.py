"""The setting `folders`: data that every job of a project gets, as in a job file. Called by
`schema.py` and by views.

folders:
  data:   {from: "az://datasets/voc20", account: eastblob, mode: ro}
  output: {to: "az://work/output", account: eastblob}
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.model.errors import UsageError
from headway.model.json_types import JsonMapping, JsonObject

_FIELDS = {"from": "source", "to": "target"}  # of a file -> of a JobSpec's folder


def folders(value: Any, field: str) -> dict[str, JsonObject]:
    from headway.settings.jobschema import FOLDERS
    from headway.settings.yamlfile import Node

    def node(found: Any) -> Node:
        if isinstance(found, dict):
            return Node({str(key): node(child) for key, child in found.items()}, 1)
        return (
            Node([node(child) for child in found], 1) if isinstance(found, list) else Node(found, 1)
        )

    if isinstance(value, str):  # HEADWAY_FOLDERS, as JSON
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise UsageError(
                f"{field}: not a mapping of folders", 'for example: {"data": {"from": "…"}}'
            ) from None
    return FOLDERS.read(node(value), field)


def fields(name: str, folder: JsonMapping, base: Path) -> JsonObject:
    """A folder of a file as one of a JobSpec; its paths count from `base`. `~` is the home on the
    machine that the folder is on, which may be a cluster's.
    """
    found = {"name": name, **{_FIELDS.get(key, key): value for key, value in folder.items()}}
    for key in _FIELDS.values():
        text = found.get(key)
        if text and "://" not in text and not text.startswith("~"):
            found[key] = os.path.normpath(os.path.join(base, text))
    return found


def merged(below: Sequence[JsonMapping], above: Sequence[JsonMapping]) -> list[JsonObject]:
    """Those of the job take the place of the project's of the same name."""
    found = {folder["name"]: dict(folder) for folder in (*below, *above)}
    return list(found.values())
