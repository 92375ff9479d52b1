"""Layouts of the page that everybody shares: saved searches, and charts of experiments. Called by the server's API."""

import json
import sqlite3

from headway.model.errors import RefusedError
from headway.model.json_types import JsonObject
from headway.model.limits import PAGE_LAYOUTS_MAX
from headway.store.jsonform import iso


def read(c: sqlite3.Connection, kind: str, name: str | None) -> list[JsonObject]:
    rows = c.execute(
        """SELECT name, data, updated_ns FROM page_layouts
           WHERE kind = :kind AND (:name IS NULL OR name = :name) ORDER BY name""",
        {"kind": kind, "name": name},
    )
    return [
        {
            "name": row["name"],
            "data": json.loads(row["data"]),
            "updated_at": iso(row["updated_ns"]),
        }
        for row in rows
    ]


def write(
    c: sqlite3.Connection, kind: str, name: str, data: JsonObject | None, now_ns: int
) -> None:
    """None removes it."""
    if data is None:
        c.execute("DELETE FROM page_layouts WHERE kind = ? AND name = ?", (kind, name))
        return
    known = c.execute("SELECT count(*) FROM page_layouts WHERE kind = ?", (kind,)).fetchone()[0]
    if known >= PAGE_LAYOUTS_MAX:
        raise RefusedError(
            f"there are {known} layouts already, and {PAGE_LAYOUTS_MAX} is the limit",
            "remove one that nobody uses",
        )
    c.execute(
        """INSERT INTO page_layouts (kind, name, data, updated_ns) VALUES (?, ?, ?, ?)
           ON CONFLICT (kind, name) DO UPDATE SET data = excluded.data, updated_ns = excluded.updated_ns""",
        (kind, name, json.dumps(data), now_ns),
    )
