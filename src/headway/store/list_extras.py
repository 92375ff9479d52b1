"""What lists say beside a job's state: what it waits for, where it runs, when it was last heard.
For many jobs at once, from what is stored already: no engine is asked. Called by `query` and
`listing`.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping

from headway.model.engine_words import queue_word
from headway.model.job import State
from headway.model.json_types import JsonObject
from headway.model.limits import NODES_LISTED_MAX
from headway.store.jsonform import iso

_SOME = 1_000
# in the order in which they start; those that wait for other jobs are not in the queue yet
_QUEUED = """SELECT pk, cluster FROM jobs WHERE begun = 0 AND state = 'waiting' AND deleted_ns IS NULL
               AND stop_requested_ns IS NULL AND engine <> 'guest' AND instr(spec, '"after":["') = 0
             ORDER BY cluster, priority DESC, submitted_ns, pk"""


def ahead(c: sqlite3.Connection) -> dict[int, int]:
    """Of each job in the queues of this server, how many are before it."""
    found: dict[int, int] = {}
    counts: dict[str, int] = {}
    for row in c.execute(_QUEUED):
        found[row["pk"]] = counts.get(row["cluster"], 0)
        counts[row["cluster"]] = found[row["pk"]] + 1
    return found


def waits_for(
    last: sqlite3.Row | None, needed: Iterable[tuple[str, State | None]], before: int | None
) -> JsonObject | None:
    """`{attempt next_at after ahead word}`: the time of its next try, by its last attempt's
    `number` and `retry`; jobs that have not succeeded yet; the word of an engine that has a queue
    of its own; or how many are ahead in ours.
    """
    told: JsonObject = {"attempt": 1, "next_at": None, "after": [], "ahead": None, "word": None}
    if last is not None and last["retry"]:
        due_ns = json.loads(last["retry"]).get("not_before_ns")
        return told | {"attempt": last["number"] + 1, "next_at": iso(due_ns)}
    left = [id_ for id_, state in needed if state is not State.SUCCEEDED]
    if left:
        return told | {"after": left}
    if word := queue_word(last["engine_word"]) if last is not None else "":
        return told | {"word": word}
    return told | {"ahead": before} if before is not None else None


def nodes(c: sqlite3.Connection, jobs: list[int]) -> dict[int, list[str]]:
    """Of each job the nodes of its last attempt."""
    found: dict[int, tuple[int, list[str]]] = {}
    wanted = """SELECT a.job, a.number, t.node FROM attempts a JOIN tasks t ON t.attempt = a.pk
                WHERE t.node IS NOT NULL AND a.job"""
    for row in _about(c, wanted, jobs, "ORDER BY a.number, t.pk"):
        number, names = found.get(row["job"], (0, []))
        names = names if number == row["number"] else []
        found[row["job"]] = (
            row["number"],
            [*names, row["node"]] if row["node"] not in names else names,
        )
    return {job: names[:NODES_LISTED_MAX] for job, (_, names) in found.items()}


def heard(c: sqlite3.Connection, jobs: list[int]) -> dict[int, str | None]:
    """Of each job when one of its agents last spoke."""
    wanted = "SELECT a.job, max(t.heard_ns) AS heard FROM attempts a JOIN tasks t ON t.attempt = a.pk WHERE a.job"
    return {row["job"]: iso(row["heard"]) for row in _about(c, wanted, jobs, "GROUP BY a.job")}


def _about(c: sqlite3.Connection, select: str, keys: list[int], rest: str) -> Iterable[sqlite3.Row]:
    for start in range(0, len(keys), _SOME):
        some = keys[start : start + _SOME]
        yield from c.execute(f"{select} IN ({', '.join('?' * len(some))}) {rest}", some)


def beside(
    state: State | str, pk: int, places: Mapping[int, list[str]], spoken: Mapping[int, str | None]
) -> JsonObject:
    """The fields of a row that are there only where something is known."""
    found: JsonObject = {"nodes": places[pk]} if places.get(pk) else {}
    return found | ({"heard_at": spoken[pk]} if state == "unknown" and spoken.get(pk) else {})
