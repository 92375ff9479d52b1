"""Jobs that start together (server/together.py) get what each would get alone, and one that cannot stops no other."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headway.engines.protocol import EngineId, Plan, Start
from headway.model import folder
from headway.model.errors import HeadwayError, UsageError
from headway.model.job import Attempt, Job, JobSpec, State
from headway.server import envfile, together
from headway.server.calls import Calls
from headway.server.together import One

TLS = {"addresses": ["192.0.2.1:1"], "pin": "00"}


class Cluster:
    """An engine that starts many at once, with tasks on other machines."""

    def __init__(self, tray: Path | None) -> None:
        self.tray = tray
        self.started: list[Start] = []

    def readdress(self, tls: Any) -> int:
        return 0

    def plan(self, job: Job, attempt: int = 1) -> Plan:
        return Plan("fake", "lab", job.id, job.uuid, attempt, (), 1)

    def submit_many(self, starts: Sequence[Start]) -> dict[str, EngineId | HeadwayError]:
        self.started += starts
        return {start.key: EngineId(start.key) for start in starts}

    def cancel_many(self, ids: Sequence[EngineId]) -> list[EngineId]:
        return []


def start(engine: Cluster, env: Path, envs: Sequence[dict[str, str]]) -> dict[str, EngineId | HeadwayError]:
    ones, found = [], {}
    for pk, variables in enumerate(envs, 1):
        job = Job(pk, f"job-{pk:05}", f"uuid-{pk}", JobSpec(["true"], "/", "job"), State.WAITING, 0, 0)
        ones.append(One(job, Attempt(1, State.WAITING, f"{job.uuid}-1"), {"worker-0": "token"}, []))
        envfile.save(env, job.uuid, envfile.Private(variables, ["true"]))

    async def reach() -> dict[str, Any]:
        return TLS

    async def launched(job: Job, attempt: Attempt, came: EngineId | HeadwayError) -> None:
        found[attempt.key] = came

    async def begin() -> None:
        calls = Calls(lambda: None)
        try:
            await together.start(ones, calls, lambda spec: engine, env, reach, launched)  # type: ignore[arg-type,return-value]
        finally:
            calls.close()

    asyncio.run(begin())
    return found


@pytest.mark.parametrize("seen", [True, False])
def test_they_are_told_where_the_server_is_if_it_can_be_reached_from_there(tmp_path: Path, seen: bool) -> None:
    engine = Cluster(tmp_path / "tray" if seen else None)
    assert len(start(engine, tmp_path, [{"A": "1"}, {"A": "2"}])) == 2
    assert [dict(one.given.env) for one in engine.started] == [{"A": "1"}, {"A": "2"}]
    assert [one.given.tls for one in engine.started] == [TLS if seen else None] * 2


def test_keys_that_are_none_fail_their_own_job_only(tmp_path: Path) -> None:
    engine = Cluster(None)
    found = start(engine, tmp_path, [{folder.KEYS: "no mapping"}, {}])
    assert isinstance(found["uuid-1-1"], UsageError)
    assert found["uuid-2-1"] == "uuid-2-1"
