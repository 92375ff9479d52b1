"""The engines that jobs use, by place. Called by all parts of control.

An engine is made by the definition that a job came with: a server that was restarted knows it, too.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from headway.engines.protocol import Distant, Engine
from headway.home.paths import Paths
from headway.model.errors import UsageError
from headway.model.job import JobSpec
from headway.server.control.blocking_calls import Calls
from headway.server.control.drain import patience_s

T = TypeVar("T")


class EnginePool:
    def __init__(
        self,
        make_engine: Callable[..., Engine],
        paths: Paths,
        setting: Callable[[str], Any],
        calls: Calls,
    ) -> None:
        self._make_engine, self._paths = make_engine, paths
        self._setting, self._calls = setting, calls
        self.by_place: dict[str, Engine] = {}

    def get(self, spec: JobSpec) -> Engine:
        engine = self.by_place.get(spec.place)
        if engine is None:
            given = (spec.definition,) if spec.definition else ()
            engine = self._make_engine(spec.cluster, self._paths, self._setting, *given)
            self.by_place[spec.place] = engine
        return engine

    def get_or_none(self, spec: JobSpec) -> Engine | None:
        try:
            return self.get(spec)
        except UsageError:
            # this version has no such engine: its jobs are not seen, and nothing is done to them
            return None

    def for_once(self, spec: JobSpec) -> Engine | None:
        """For a look: an engine of a definition that no job has is not kept."""
        return self._make_engine(spec.cluster, self._paths, self._setting, spec.definition)

    def distant(self) -> list[Distant]:
        """Those whose tasks may be on other machines."""
        return [engine for engine in self.by_place.values() if isinstance(engine, Distant)]

    async def ask(self, engine: Engine, name: str, call: Callable[..., T], *args: object) -> T:
        """One that is slow answers later; until then nothing is known of it."""
        return await self._calls.run(
            name, call, *args, patience_s=patience_s(engine), of=engine.cluster
        )

    def close(self) -> None:
        for engine in self.by_place.values():
            engine.close()
