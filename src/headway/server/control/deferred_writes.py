"""Writes that nobody waits for: they go with the next commit, whoever's it is. Called by `loop.py`.

Only for what can be found out again, should the server be killed before.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from sqlite3 import Connection

from headway.model.errors import HeadwayError
from headway.store.database import Store

log = logging.getLogger("headway.control")


class Later:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._begun: list[tuple[str, Future[None]]] = []

    def put(self, what: str, work: Callable[[Connection], None]) -> None:
        """`what` it is, should it fail."""
        self._begun.append((what, self._store.submit(work, urgent=False)))

    async def settle(self) -> None:
        """Everything so far is stored, or was told as what could not be."""
        begun, self._begun = self._begun, []
        if not all(future.done() for _, future in begun):
            self._store.write(_nothing)  # which waits for no company, and takes them along
        for what, future in begun:
            try:
                await asyncio.wrap_future(future)
            except HeadwayError as error:
                log.warning("%s could not be stored: %s", what, error)


def _nothing(c: Connection) -> None:
    """A commit for its own sake."""
