"""The news of one job as they come, across restarts of the server. Called by `run`, `submit --wait`
and `logs -f`.

The cursor is ours: whatever happens to the server meanwhile, the next answer starts where the last
one ended.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from headway.model.errors import UnreachableError
from headway.model.json_types import JsonObject
from headway.model.limits import FOLLOW_WAIT_S
from headway.views.api.source import Source, job_route, until_reached

Answer = JsonObject


class Follow:
    """`lost` and `found` are told once per outage. Without `records`, log records are left out: for
    plain output; without `lines` the lines, too, for a viewer that reads the bytes when there are
    more.
    """

    def __init__(
        self,
        source: Source,
        job_id: str,
        *,
        tail: int | None = None,
        records: bool = True,
        lines: bool = True,
        lost: Callable[[], None] = lambda: None,
        found: Callable[[], None] = lambda: None,
    ) -> None:
        self.source, self.job_id, self.tail = source, job_id, tail
        self.records, self.lines, self.lost, self.found = records, lines, lost, found
        self.cursor: Any = None
        self._away = False

    def answers(self, wait_s: Callable[[], float] = lambda: FOLLOW_WAIT_S) -> Iterator[Answer]:
        """Answers up to and including the one that says `done`. The server is asked again only
        after each is used.

        `wait_s` says before each question how long the server may wait for news.
        """
        while True:
            answer: Answer = self.ask(partial(self._once, wait_s()))
            self.cursor = answer.get("cursor")
            yield answer
            if answer.get("done"):
                return

    def ask(self, question: Callable[[Source], Any]) -> Any:
        """Put a question to the server, for as long as it takes to reach it."""
        found = until_reached(lambda: question(self._connected()), self._lost)
        if self._away:
            self._away = False
            self.found()
        return found

    def _once(self, wait_s: float, source: Source) -> Answer:
        body: JsonObject = {"cursor": self.cursor, "wait_s": wait_s}
        if self.cursor is None and self.tail is not None:
            body["tail"] = self.tail
        if not self.records:
            body["records"] = False
        if not self.lines:
            body["lines"] = False
        answer: Answer = source.post(job_route(self.job_id, "follow"), body, wait_s=wait_s)
        return answer

    def _connected(self) -> Source:
        if self._away:
            self.source.reconnect()
        return self.source

    def _lost(self, _: UnreachableError) -> None:
        if not self._away:
            self._away = True
            self.lost()
