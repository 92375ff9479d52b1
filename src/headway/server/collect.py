"""`hw gc` in the folders that clusters keep code and data in. Called by `control.collect`.

Each cluster is asked in a thread of its own, as in `survey.py`: one that does not answer costs its
own line only.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from headway.engines.protocol import Engine, Storer
from headway.model.errors import HeadwayError
from headway.server.calls import Calls


async def collect(
    calls: Calls, engines: Mapping[str, Engine], open_jobs: Sequence[str], *, dry_run: bool
) -> list[dict[str, Any]]:
    """A row for each that has a folder of its own: what was freed there, or the error in words."""
    asked = [_ask(calls, place, engine, open_jobs, dry_run) for place, engine in engines.items()]
    return [row for row in await asyncio.gather(*asked) if row is not None]


async def _ask(
    calls: Calls, place: str, engine: Engine, open_jobs: Sequence[str], dry_run: bool
) -> dict[str, Any] | None:
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
