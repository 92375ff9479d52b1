"""`GET /metrics`: jobs that run, for Prometheus to scrape: their last values, and how many jobs are in which state.

A token of role read is its bearer token (`authorization: {credentials: …}` in its configuration).
"""

import json
import sqlite3
import struct

from headway.model.limits import PROMETHEUS_SERIES_MAX
from headway.server import contract
from headway.server.app import Route
from headway.server.http.auth import Role
from headway.server.http.request import Call, Reply
from headway.store import query

TEXT = b"text/plain; version=0.0.4; charset=utf-8"


async def metrics(call: Call) -> Reply:
    """Last values of jobs that run, as Prometheus reads them."""
    return Reply(await call.services.query(render), content_type=TEXT)


def render(c: sqlite3.Connection) -> bytes:
    out = [
        "# HELP headway_jobs Jobs by state.",
        "# TYPE headway_jobs gauge",
        *(
            f"headway_jobs{_labels(state=state)} {count}"
            for state, count in sorted(query.count_jobs(c).items())
        ),
        "# HELP headway_metric Last value of a metric of a job that runs.",
        "# TYPE headway_metric gauge",
    ]
    steps = ["# HELP headway_step Step of that value.", "# TYPE headway_step gauge"]
    rows = c.execute(
        """SELECT j.id, j.experiment, s.name, s.rank, s.attempt, l.value, l.step FROM jobs j
           JOIN series s ON s.job = j.pk JOIN latest l ON l.series = s.pk
           WHERE j.state = 'running' AND j.deleted_ns IS NULL
             AND s.attempt = (SELECT max(number) FROM attempts WHERE job = j.pk)
           ORDER BY j.pk, s.name, s.rank LIMIT :limit""",
        {"limit": PROMETHEUS_SERIES_MAX},
    )
    seen: set[str] = set()
    for row in rows:
        name, _, rest = str(row["name"]).partition("{")
        tags = json.dumps(rest.rstrip("}")) if rest else '""'
        labels = _labels(
            job=row["id"],
            experiment=row["experiment"] or "",
            name=name,
            tags=json.loads(tags),
            rank=row["rank"],
        )
        if labels in seen:
            continue  # two processes of one rank
        seen.add(labels)
        out.append(f"headway_metric{labels} {_number(struct.unpack('<d', row['value'])[0])}")
        steps.append(f"headway_step{labels} {row['step']}")
    return ("\n".join([*out, *steps]) + "\n").encode()


def _labels(**pairs: object) -> str:
    def quoted(value: object) -> str:
        return str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return "{" + ",".join(f'{name}="{quoted(value)}"' for name, value in pairs.items()) + "}"


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


ROUTES = [Route("GET", "/metrics", Role.READ, metrics, answer=contract.Raw)]
