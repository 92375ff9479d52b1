"""Points that come in are also sent to a time-series database, as InfluxDB's line protocol (setting `influx_url`).

InfluxDB 1.x and 2.x and VictoriaMetrics take it. The store itself is the backlog: a note beside the database says how
many points of each series were sent, and is written when the other side has said yes. While that is away nothing is
lost and nothing piles up; more than SINK_BEHIND_POINTS_MAX behind, the oldest are passed over, and that is told.
"""

import asyncio
import json
import logging
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import urlencode

from headway.home.paths import Paths
from headway.model.limits import (
    BACKOFF_FIRST_S,
    SINK_BACKOFF_MAX_S,
    SINK_BATCH_POINTS,
    SINK_BEHIND_POINTS_MAX,
    SINK_INTERVAL_S,
)
from headway.store.database import Store
from headway.store.series import read_last

log = logging.getLogger("headway.sinks")
TIMEOUT_S = 10.0
_ESCAPED = str.maketrans({",": "\\,", " ": "\\ ", "=": "\\="})


class Getter(Protocol):
    def get(self, name: str) -> Any: ...


class InfluxSink:
    """`settings`: influx_url, influx_database, influx_token. Runs beside the server, and never holds it up."""

    def __init__(self, store: Store, paths: Paths, settings: Getter) -> None:
        self._store, self._note = store, paths.home / "influx-sink.json"
        self.url = str(settings.get("influx_url") or "").rstrip("/")
        self._database = str(settings.get("influx_database") or "headway")
        self._token = str(settings.get("influx_token") or "")
        self._sent: dict[int, int] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_created = False
        self.trouble = ""

    async def start(self) -> None:
        if self.url:
            self._task = asyncio.create_task(self._run(), name="headway-influx")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        self._sent = await asyncio.to_thread(self._load)
        pause_s = SINK_INTERVAL_S
        while True:
            await asyncio.sleep(pause_s)
            try:
                more = await asyncio.to_thread(self.step)
                self._tell("")
                pause_s = 0.0 if more else SINK_INTERVAL_S
            # a mistake in one round, or an answer of somebody else's server, must not end it for good
            except Exception as error:
                self._tell(f"{type(error).__name__}: {error}")
                pause_s = min(max(pause_s, BACKOFF_FIRST_S) * 2, SINK_BACKOFF_MAX_S)

    def _tell(self, trouble: str) -> None:
        if trouble != self.trouble:
            log.warning("%s: %s", self.url, trouble or "takes points again")
        self.trouble = trouble

    # -- one round, in a thread

    def step(self) -> bool:
        """Send what is new, up to a batch; whether there is more. Raises OSError when the other side does not take it."""
        with self._store.read() as c:
            lines, sent, more = self._collect(c)
        if lines:
            self._post("\n".join(lines).encode())
            self._sent.update(sent)
            self._save()
        return more

    def _collect(self, c: sqlite3.Connection) -> tuple[list[str], dict[int, int], bool]:
        rows = c.execute(
            """SELECT s.pk, s.name, s.rank, s.attempt, j.id, j.experiment, l.points FROM latest l
               JOIN series s ON s.pk = l.series JOIN jobs j ON j.pk = s.job WHERE j.deleted_ns IS NULL"""
        ).fetchall()
        lines: list[str] = []
        sent: dict[int, int] = {}
        for row in rows:
            waiting = int(row["points"]) - self._sent.get(row["pk"], 0)
            if waiting <= 0:
                continue
            if len(lines) >= SINK_BATCH_POINTS:
                return lines, sent, True
            if waiting > SINK_BEHIND_POINTS_MAX:
                log.warning(
                    "%s of %s: %d points are passed over",
                    row["name"],
                    row["id"],
                    waiting - SINK_BEHIND_POINTS_MAX,
                )
                waiting = SINK_BEHIND_POINTS_MAX
            lines += _lines(c, row, waiting)
            sent[row["pk"]] = int(row["points"])
        return lines, sent, False

    def _post(self, body: bytes) -> None:
        if not self._is_created:
            self._create()
        query = {"db": self._database, "bucket": self._database, "precision": "ns"}
        self._request(f"{self.url}/write?{urlencode(query)}", body)

    def _create(self) -> None:
        """InfluxDB 1.x refuses points for a database that is not there; others do not know the question."""
        with suppress(urllib.error.HTTPError):
            self._request(
                f"{self.url}/query?{urlencode({'q': f'CREATE DATABASE {_quoted(self._database)}'})}",
                b"",
            )
        self._is_created = True

    def _request(self, url: str, body: bytes) -> None:
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        if self._token:
            headers["Authorization"] = f"Token {self._token}"
        asked = urllib.request.Request(url, body, headers)  # noqa: S310  (http or https: the setting is checked)
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:  # noqa: S310
            answer.read(1 << 16)

    # -- what is written down

    def _load(self) -> dict[int, int]:
        try:
            found = json.loads(self._note.read_bytes())
            if found.get("url") == self.url:
                return {int(pk): int(count) for pk, count in found["sent"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        with self._store.read() as c:  # a new address gets what comes from now on
            return {
                row["series"]: int(row["points"])
                for row in c.execute("SELECT series, points FROM latest")
            }

    def _save(self) -> None:
        draft = self._note.with_suffix(".tmp")
        draft.write_text(json.dumps({"url": self.url, "sent": self._sent}))
        draft.chmod(0o600)
        draft.replace(self._note)


def _lines(c: sqlite3.Connection, row: sqlite3.Row, count: int) -> Iterator[str]:
    name, _, rest = str(row["name"]).partition("{")
    pairs = [word.partition("=") for word in rest.rstrip("}").split(",") if "=" in word]
    tags = {
        "job": row["id"],
        "experiment": row["experiment"],
        "rank": row["rank"],
        "attempt": row["attempt"],
    }
    tags |= {key: value for key, _, value in pairs}
    head = _escape(name) + "".join(
        f",{_escape(key)}={_escape(value)}" for key, value in tags.items() if value is not None
    )
    points = read_last(c, row["pk"], count)
    for step, time_us, value in zip(
        points.steps.tolist(), points.times_us.tolist(), points.values.tolist(), strict=True
    ):
        if value - value == 0.0:  # neither takes NaN
            yield f"{head} value={value!r},step={step}i {time_us * 1000}"


def _escape(word: object) -> str:
    return str(word).replace("\n", " ").translate(_ESCAPED) or "_"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', "") + '"'
