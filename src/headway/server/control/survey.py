"""What the clusters have: reachable, free, running, waiting; and whether a job would fit. Called by
`control.survey`.

Each cluster is asked in a thread of its own and given up after a time, so one that hangs costs its
own line only.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from headway.engines.protocol import Distant, Engine, Node, Queue, Storer
from headway.model.errors import HeadwayError, UnreachableError
from headway.model.job import Job, JobSpec, State
from headway.model.json_types import JsonObject
from headway.server.control import queue
from headway.server.control.blocking_calls import Calls

KINDS = ("gpus", "cpus", "memory_bytes")


@dataclass(slots=True)
class Asked:
    """One cluster of the question: what a job there would be, its engine, and what came of asking
    it.
    """

    spec: JobSpec
    engine: Engine | None = None
    nodes: Sequence[Node] = ()
    queue: str | None = None  # where others have jobs there, too
    error: str | None = None
    refusal: str | None = None


def capacity_of(engine: Engine) -> Callable[[], list[Node]]:
    """What tells a person how it is now, also that the engine is away."""
    return engine.capacity_now if isinstance(engine, Queue) else engine.capacity


async def ask(calls: Calls, asked: Asked, sketch: Job | None) -> None:
    """Fill in nodes, or the error in words; with `sketch`, whether that job could ever run there."""
    engine = asked.engine
    if engine is None:
        return
    try:
        asked.nodes = await calls.run(f"survey of {asked.spec.place}", capacity_of(engine))
        if isinstance(engine, Queue):
            asked.queue = await calls.run(f"queue of {asked.spec.place}", engine.queue_words)
        if sketch is not None:
            await calls.run(f"trial plan for {asked.spec.place}", engine.plan, sketch)
    except HeadwayError as error:
        text = f"{error.message}; {error.hint}" if error.hint else error.message
        if asked.nodes and not isinstance(error, UnreachableError):
            asked.refusal = text
        else:
            asked.error = text
    # an engine may fail in any way, and must not hide the others
    except Exception as error:
        asked.error = f"{type(error).__name__}: {error}"


async def ask_all(calls: Calls, clusters: Sequence[Asked], sketches: Sequence[Job | None]) -> None:
    await asyncio.gather(
        *(ask(calls, asked, sketch) for asked, sketch in zip(clusters, sketches, strict=True))
    )


def rows(
    clusters: Sequence[Asked], jobs: Sequence[Job], nodes: Mapping[str, Sequence[Node]]
) -> list[JsonObject]:
    """`nodes`: also of the places of other open jobs, since places on one machine share it."""
    left = queue.left(jobs, nodes)
    return [
        _row(asked, [j for j in jobs if j.spec.place == asked.spec.place], left)
        for asked in clusters
    ]


def _row(
    asked: Asked, jobs: Sequence[Job], left: Mapping[str, Mapping[str, int | None]]
) -> JsonObject:
    own = _own_free(asked.nodes)
    free = own if own is not None else dict(left.get(asked.spec.place, {}))
    waiting = [job for job in jobs if job.state is State.WAITING and job.ended_ns is None]
    need = {
        "gpus": asked.spec.gpus or None,
        "cpus": asked.spec.cpus,
        "memory_bytes": asked.spec.memory_bytes,
    }
    return {
        "name": asked.spec.cluster,
        "engine": asked.engine.name if asked.engine else asked.spec.definition.get("engine"),
        "definition": asked.spec.definition,
        "reachable": asked.error is None,
        "error": asked.error,
        "refusal": asked.refusal,
        "total": {kind: _sum(getattr(node, kind) for node in asked.nodes) for kind in KINDS},
        "free": {kind: free.get(kind) for kind in KINDS},
        "fits_now": all(
            (have := free.get(kind)) is None or not want or want <= have
            for kind, want in need.items()
        ),
        "running": sum(
            1
            for job in jobs
            if job.ended_ns is None and job.state not in (State.WAITING, State.UNKNOWN)
        ),
        "waiting": len(waiting),
        "queue": asked.queue,
        "nodes": [asdict(node) for node in asked.nodes],
        "tray": _tray(asked.engine),
    }


def _tray(engine: Engine | None) -> str | None:
    """The folder for requests of agents on other machines, where there may be such."""
    return (
        str(engine.tray) if isinstance(engine, Distant) and isinstance(engine.tray, Path) else None
    )


def _own_free(nodes: Sequence[Node]) -> dict[str, int | None] | None:
    """What the engine itself counts as free; None where it does not count."""
    if all(node.free_cpus is None and node.free_gpus is None for node in nodes):
        return None
    return {kind: _sum(getattr(node, f"free_{kind}") for node in nodes) for kind in KINDS}


def _sum(values: Any) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


async def collect(
    calls: Calls, engines: Mapping[str, Engine], open_jobs: Sequence[str], *, dry_run: bool
) -> list[JsonObject]:
    """A row for each that has a folder of its own: what was freed there, or the error in words."""
    asked = [_ask(calls, place, engine, open_jobs, dry_run) for place, engine in engines.items()]
    return [row for row in await asyncio.gather(*asked) if row is not None]


async def _ask(
    calls: Calls, place: str, engine: Engine, open_jobs: Sequence[str], dry_run: bool
) -> JsonObject | None:
    if not isinstance(engine, Storer):
        return None
    try:
        freed = await calls.run(
            f"gc of {place}", partial(engine.collect, open_jobs, dry_run=dry_run)
        )
    except (HeadwayError, OSError) as error:
        return {
            "cluster": engine.cluster,
            "snapshots": 0,
            "folders": 0,
            "bytes": 0,
            "error": str(error),
        }
    return None if freed is None else {"cluster": engine.cluster, **asdict(freed), "error": None}
