"""Executes decisions: the one loop that turns stored state and observations into writes and engine calls.

The API calls the verbs (`submit`, `abort`, `signal`, `resubmit`, `delete`, `register`, `commands_for`, `heard`).
References are resolved by the API (`catalog.resolve`); the verbs take the job's pk.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from headway.model.job import Job, JobSpec
from headway.settings.home import Paths
from headway.wire.batch import TaskKey


class Control:
    def __init__(self, store: Any, paths: Paths, settings: Any) -> None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def poke(self) -> None:
        """Decide soon. From any thread."""

    def heard(self, task: TaskKey) -> None:
        """An agent has spoken (ingest; `commands_for` does it by itself). From any thread."""

    async def submit(self, uuid: str, spec: JobSpec | Mapping[str, Any], env: Mapping[str, str]) -> Job: ...

    async def abort(self, pk: int) -> Job: ...

    async def signal(self, pk: int, signum: int) -> Job: ...

    async def resubmit(
        self, pk: int, uuid: str, changes: Mapping[str, Any], env: Mapping[str, str] | None
    ) -> Job: ...

    async def delete(self, pk: int) -> None: ...

    async def register(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Body and answer of `POST /agent/register`."""

    async def commands_for(self, task: TaskKey, wait_s: float, done: Sequence[int]) -> list[dict[str, Any]]:
        """Commands for a task's agent; answers at once when there are some, else after `wait_s`."""
