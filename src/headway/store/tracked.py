"""What a job tracked beside its points: how metrics are meant, its own summary, media. Called by `fact` and the API.

Writers say whether they could read their fact; what they could not read stays an event. A fact that is applied again
changes nothing: everything has a key that its writer drew.
"""

import base64
import binascii
import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase

from headway.model.json_types import JsonObject
from headway.model.limits import (
    MEDIA_BYTES_MAX,
    MEDIA_JOB_BYTES_MAX,
    MEDIA_LISTED_MAX,
    METRIC_DEFINITIONS_MAX,
    METRIC_NAME_BYTES_MAX,
    SUMMARY_VALUES_MAX,
)
from headway.model.metric_direction import Direction
from headway.store.jsonform import iso, whole
from headway.store.live_write import Origin

Fact = JsonObject
KINDS = ("image", "audio", "video", "histogram", "table", "text", "html", "figure", "file")
GOALS = ("min", "max")
_WORD_CHARS = 200
_VALUE_CHARS = 64 * 1024


def _name(value: object) -> str | None:
    return (
        value
        if isinstance(value, str) and 0 < len(value.encode()) <= METRIC_NAME_BYTES_MAX
        else None
    )


# -- how metrics are meant ---------------------------------------------------------------------------------------------


def put_definition(c: sqlite3.Connection, o: Origin, fact: Fact) -> bool:
    """`{name, x, goal, summary}`: the last word about a name counts."""
    name = _name(fact.get("name"))
    if name is None:
        return False
    row = {"job": o.job, "name": name}
    known = c.execute("SELECT count(*) FROM metric_definitions WHERE job = :job", row).fetchone()[0]
    if known >= METRIC_DEFINITIONS_MAX:
        return False
    words = fact.get("summary")
    data = {
        "x": _name(fact.get("x")),
        "goal": fact["goal"] if fact.get("goal") in GOALS else None,
        "summary": [str(word)[:_WORD_CHARS] for word in words[:8]]
        if isinstance(words, list)
        else [],
    }
    c.execute(
        """INSERT INTO metric_definitions (job, name, data) VALUES (:job, :name, :data)
           ON CONFLICT (job, name) DO UPDATE SET data = excluded.data""",
        {**row, "data": json.dumps(data)},
    )
    return True


def definitions(c: sqlite3.Connection, job: int) -> dict[str, Fact]:
    rows = c.execute("SELECT name, data FROM metric_definitions WHERE job = :job", {"job": job})
    return {row["name"]: json.loads(row["data"]) for row in rows}


def definition_of(known: dict[str, Fact], name: str) -> Fact | None:
    """What was said of a metric: by its name, and what that leaves open by the patterns that it
    fits, the longest first.
    """
    base = name.partition("{")[0]
    fitting = [pattern for pattern in known if "*" in pattern and fnmatchcase(base, pattern)]
    fitting.sort(key=len, reverse=True)
    found: Fact = {}
    for said in (name, base, *fitting):
        for key, value in known.get(said, {}).items():
            if not found.get(key):
                found[key] = value
    return found or None


def goals(
    c: sqlite3.Connection, jobs: Sequence[int], names: Collection[str]
) -> dict[str, Direction]:
    """Which way these metrics are better, where a program has said so; of several that differ, the
    last one counts. A metric whose summary is its highest value wants the most.
    """
    rows = c.execute(
        """SELECT d.name, d.data FROM json_each(:jobs) j
           CROSS JOIN metric_definitions d ON d.job = j.value ORDER BY d.job""",
        {"jobs": json.dumps(list(jobs))},
    )
    known: dict[str, Fact] = {}
    for row in rows:
        told = json.loads(row["data"])
        told["goal"] = told["goal"] or _summary_goal(told["summary"])
        if told["goal"]:
            known[row["name"]] = told
    found = {name: definition_of(known, name) for name in names} if known else {}
    return {name: told["goal"] for name, told in found.items() if told is not None}


def _summary_goal(summary: list[str]) -> str | None:
    extremes = [word for word in summary if word in GOALS]
    return extremes[0] if len(extremes) == 1 else None


# -- summaries ---------------------------------------------------------------------------------------------------------


def put_summary(c: sqlite3.Connection, o: Origin, fact: Fact) -> bool:
    """`{values: {name: value}}`: each value replaces the last one of its name; a null takes it away."""
    values = fact.get("values")
    if not isinstance(values, dict):
        return False
    known = c.execute(
        "SELECT count(*) FROM summary_values WHERE job = :job", {"job": o.job}
    ).fetchone()[0]
    for name, value in values.items():
        row = {"job": o.job, "name": _name(name), "attempt": o.attempt, "now": o.when_ns}
        if row["name"] is None:
            continue
        if value is None:
            c.execute("DELETE FROM summary_values WHERE job = :job AND name = :name", row)
            continue
        text = json.dumps(value)
        if len(text) > _VALUE_CHARS or known >= SUMMARY_VALUES_MAX:
            continue
        known += 1
        c.execute(
            """INSERT INTO summary_values (job, name, value, attempt, time_ns) VALUES (:job, :name, :value, :attempt, :now)
               ON CONFLICT (job, name) DO UPDATE SET value = excluded.value, attempt = excluded.attempt,
                 time_ns = excluded.time_ns WHERE excluded.attempt >= attempt""",
            {**row, "value": text},
        )
    return True


def summary(c: sqlite3.Connection, job: int) -> Fact:
    rows = c.execute(
        "SELECT name, value FROM summary_values WHERE job = :job ORDER BY name", {"job": job}
    )
    return {row["name"]: json.loads(row["value"]) for row in rows}


# -- media -------------------------------------------------------------------------------------------------------------


def data(c: sqlite3.Connection, job: int) -> list[Fact]:
    """Fingerprints of what it reads; the last one of each name."""
    rows = c.execute(
        "SELECT data FROM events WHERE job = :job AND type = 'data' ORDER BY pk", {"job": job}
    )
    found = {str(fact.get("name")): fact for fact in (json.loads(row["data"]) for row in rows)}
    return list(found.values())


def put_piece(c: sqlite3.Connection, o: Origin, fact: Fact) -> bool:
    """A part of something that is too large for one fact; its `media` fact comes behind its last piece."""
    number = whole(fact.get("index"))
    if number is None or not isinstance(fact.get("key"), str) or not _has_room(c, o.job):
        return False
    return _put_data(c, o, fact["key"], number, fact.get("base64"))


def _has_room(c: sqlite3.Connection, job: int) -> bool:
    used = c.execute(
        "SELECT coalesce(sum(size), 0) FROM media WHERE job = :job", {"job": job}
    ).fetchone()[0]
    return bool(used < MEDIA_JOB_BYTES_MAX)


def _put_data(c: sqlite3.Connection, o: Origin, key: str, number: int, text: object) -> bool:
    if not isinstance(text, str) or number * len(text) > 2 * MEDIA_BYTES_MAX:
        return False
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    c.execute(
        """INSERT INTO media_pieces (job, attempt, key, number, data) VALUES (:job, :attempt, :key, :number, :data)
           ON CONFLICT DO NOTHING""",
        {
            "job": o.job,
            "attempt": o.attempt,
            "key": key[:_WORD_CHARS],
            "number": number,
            "data": data,
        },
    )
    return True


def put_media(c: sqlite3.Connection, o: Origin, fact: Fact) -> bool:
    name, step, size = _name(fact.get("name")), whole(fact.get("step")), whole(fact.get("size"))
    key, kind, mime = fact.get("key"), fact.get("kind"), fact.get("mime")
    if (
        name is None
        or step is None
        or size is None
        or not isinstance(key, str)
        or kind not in KINDS
    ):
        return False
    if not isinstance(mime, str) or not _has_room(c, o.job):
        return False
    if "base64" in fact and not _put_data(c, o, key, 0, fact["base64"]):
        return False
    meta = json.dumps(fact["meta"]) if isinstance(fact.get("meta"), dict) else "{}"
    c.execute(
        """INSERT INTO media (job, attempt, rank, key, name, step, time_ns, kind, mime, size, meta) VALUES
             (:job, :attempt, :rank, :key, :name, :step, :now, :kind, :mime, :size, :meta) ON CONFLICT DO NOTHING""",
        {
            "job": o.job, "attempt": o.attempt, "rank": o.rank, "key": key[:_WORD_CHARS], "name": name, "step": step,
            "now": o.when_ns, "kind": kind, "mime": mime[:_WORD_CHARS], "size": size,
            "meta": meta if len(meta) <= _VALUE_CHARS else "{}",
        },
    )  # fmt: skip
    return True


def media_list(
    c: sqlite3.Connection, job: int, name: str | None = None, limit: int = MEDIA_LISTED_MAX
) -> list[Fact]:
    """Newest last; `number` names one of them for `media_data`."""
    rows = c.execute(
        """SELECT * FROM (SELECT * FROM media WHERE job = :job AND (:name IS NULL OR name = :name)
             ORDER BY pk DESC LIMIT :limit) ORDER BY pk""",
        {"job": job, "name": name, "limit": min(limit, MEDIA_LISTED_MAX)},
    )
    return [
        {
            "number": row["pk"], "name": row["name"], "step": row["step"], "time": iso(row["time_ns"]),
            "attempt": row["attempt"], "rank": row["rank"], "kind": row["kind"], "mime": row["mime"],
            "size": row["size"], "meta": json.loads(row["meta"]),
        }
        for row in rows
    ]  # fmt: skip


def media_data(c: sqlite3.Connection, job: int, number: int) -> tuple[str, bytes] | None:
    """(mime type, bytes) of one; None where there is no such one."""
    row = c.execute(
        "SELECT attempt, key, mime FROM media WHERE job = :job AND pk = :pk",
        {"job": job, "pk": number},
    ).fetchone()
    if row is None:
        return None
    return row["mime"], b"".join(_pieces(c, job, row["attempt"], row["key"]))


def _pieces(c: sqlite3.Connection, job: int, attempt: int, key: str) -> Iterator[bytes]:
    rows = c.execute(
        "SELECT data FROM media_pieces WHERE job = :job AND attempt = :attempt AND key = :key ORDER BY number",
        {"job": job, "attempt": attempt, "key": key},
    )
    for row in rows:
        yield row["data"]
