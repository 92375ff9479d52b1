"""What is to be told to people: changes of state that were not looked at yet, and the outbox of
notices.

Plain functions on a connection. `catalog.set_job_state` notes each change in its own transaction;
`server/notify/notifier.py` turns changes into notices, and sends those (capability 63).
"""

import json
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headway.model.json_types import JsonMapping, JsonObject
from headway.model.limits import NOTICES_KEPT_MAX, NOTICES_WAITING_MAX
from headway.store.jsonform import iso

ALERT = "alert"  # the old state of what is no change, but a word of the program
CHANGES_STEP = 100  # looked at in one transaction
# streams that a program itself fills
_SIGNS = ("stdout-", "stderr-", "logs-", "tracks-", "facts-", "metrics-")


@dataclass(frozen=True, slots=True)
class Change:
    """A job took another state."""

    job: int
    attempt: int
    old: str
    new: str
    since_ns: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to tell. The same key is never told twice in the same way."""

    key: str
    job: int
    kind: str
    facts: JsonObject


@dataclass(frozen=True, slots=True)
class Due:
    """A notice whose time to be sent has come, by one channel."""

    pk: int
    channel: str
    facts: JsonObject
    tries: int


def note_change(
    c: sqlite3.Connection, job: int, old: str, new: str, since_ns: int, now_ns: int
) -> None:
    c.execute(
        """INSERT INTO changes (job, attempt, old, new, since_ns, time_ns) VALUES
             (:job, (SELECT coalesce(max(number), 0) FROM attempts WHERE job = :job), :old, :new, :since, :now)""",
        {"job": job, "old": old, "new": new, "since": since_ns, "now": now_ns},
    )


def note_alert(
    c: sqlite3.Connection, job: int, attempt: int, title: str, text: str, now_ns: int
) -> None:
    """A program's own alert waits among the changes, until it is known who is to be told."""
    words = json.dumps({"title": title, "text": text})
    c.execute(
        """INSERT INTO changes (job, attempt, old, new, since_ns, time_ns)
           VALUES (:job, :attempt, :old, :new, :now, :now)""",
        {"job": job, "attempt": attempt, "old": ALERT, "new": words, "now": now_ns},
    )


def has_changes(c: sqlite3.Connection) -> bool:
    return c.execute("SELECT 1 FROM changes LIMIT 1").fetchone() is not None


def forget_changes(c: sqlite3.Connection) -> None:
    """Nobody wants to be told."""
    c.execute("DELETE FROM changes")


def take_changes(
    c: sqlite3.Connection,
    decide: Callable[[Change], Notice | None],
    channels: Iterable[str],
    now_ns: int,
) -> int:
    """Some changes become notices, or nothing, and go: all in the caller's transaction. How many
    there were.
    """
    rows = c.execute("SELECT * FROM changes ORDER BY pk LIMIT :n", {"n": CHANGES_STEP}).fetchall()
    names = list(channels)
    for row in rows:
        known = ("job", "attempt", "old", "new", "since_ns", "time_ns")
        notice = decide(Change(**{name: row[name] for name in known}))
        if notice is not None:
            put(c, notice, names, now_ns)
        c.execute("DELETE FROM changes WHERE pk = :pk", {"pk": row["pk"]})
    return len(rows)


def put(c: sqlite3.Connection, notice: Notice, channels: Iterable[str], now_ns: int) -> None:
    """Into the outbox, once for each channel. What was put there before under the same key stays as
    it is.
    """
    waiting = c.execute("SELECT count(*) FROM notices WHERE due_ns IS NOT NULL").fetchone()[0]
    full = waiting >= NOTICES_WAITING_MAX
    for channel in channels:
        c.execute(
            """INSERT INTO notices (key, channel, job, kind, facts, created_ns, due_ns, result)
               VALUES (:key, :channel, :job, :kind, :facts, :now, :due, :result) ON CONFLICT DO NOTHING""",
            {
                "key": notice.key, "channel": channel, "job": notice.job, "kind": notice.kind,
                "facts": json.dumps(notice.facts), "now": now_ns, "due": None if full else now_ns,
                "result": f"not sent: {waiting} others wait" if full else None,
            },
        )  # fmt: skip
    c.execute(
        "DELETE FROM notices WHERE due_ns IS NULL AND pk <= (SELECT max(pk) FROM notices) - :kept",
        {"kept": NOTICES_KEPT_MAX},
    )


def due(c: sqlite3.Connection, now_ns: int, limit: int) -> list[Due]:
    rows = c.execute(
        "SELECT pk, channel, facts, tries FROM notices WHERE due_ns <= :now ORDER BY due_ns, pk LIMIT :n",
        {"now": now_ns, "n": limit},
    )
    return [Due(row["pk"], row["channel"], json.loads(row["facts"]), row["tries"]) for row in rows]


def next_due_ns(c: sqlite3.Connection) -> int | None:
    found: int | None = c.execute(
        "SELECT min(due_ns) FROM notices WHERE due_ns IS NOT NULL"
    ).fetchone()[0]
    return found


def mark(
    c: sqlite3.Connection,
    pk: int,
    *,
    result: str,
    due_ns: int | None = None,
    sent_ns: int | None = None,
) -> None:
    """One try was made. Without `due_ns` it was the last one."""
    c.execute(
        "UPDATE notices SET tries = tries + 1, result = :result, due_ns = :due, sent_ns = :sent WHERE pk = :pk",
        {"pk": pk, "result": result, "due": due_ns, "sent": sent_ns},
    )


def last(c: sqlite3.Connection, limit: int) -> list[JsonObject]:
    """The newest notices, for people: `[{time kind id channel state tries result}]`."""
    rows = c.execute(
        """SELECT n.*, j.id AS job_id FROM notices n JOIN jobs j ON j.pk = n.job ORDER BY n.pk DESC LIMIT :n""",
        {"n": limit},
    )
    return [_shown(row) for row in rows]


def _shown(row: JsonMapping) -> JsonObject:
    if row["sent_ns"] is not None:
        state = "sent"
    else:
        state = "given up" if row["due_ns"] is None else "waiting"
    return {
        "time": iso(row["created_ns"]), "kind": row["kind"], "id": row["job_id"], "channel": row["channel"],
        "state": state, "sent_at": iso(row["sent_ns"]), "tries": row["tries"], "result": row["result"],
    }  # fmt: skip


def signs(c: sqlite3.Connection) -> dict[int, int]:
    """For each job that runs, or is not heard of: how many bytes its programs have given so far.
    Usage does not count: that is sampled by the agent whether or not anything happens.
    """
    terms = " OR ".join(f"s.name GLOB '{name}*'" for name in _SIGNS)
    rows = c.execute(
        f"""SELECT j.pk AS job, coalesce(sum(s.position), 0) AS bytes FROM jobs j
              LEFT JOIN attempts a ON a.job = j.pk LEFT JOIN tasks t ON t.attempt = a.pk
              LEFT JOIN streams s ON s.task = t.pk AND ({terms})
              WHERE j.state IN ('running', 'unknown') AND j.ended_ns IS NULL AND j.deleted_ns IS NULL
              GROUP BY j.pk""",  # noqa: S608  (our own words)
    )
    return {row["job"]: row["bytes"] for row in rows}
