"""Requests to the server as files in a folder that both see (`wire/tray.py`): the way for a node
without a network.

Driven by `failover.py` as a connection is. There is at most one request in the folder at a time;
one that is not answered in time is taken back, and what is sent then has another name, so that no
late answer can be taken for the new one's.
"""

from __future__ import annotations

import os

from headway.agent.transport.http import Answer, Channel
from headway.model.errors import HeadwayError
from headway.model.limits import (
    TRAY_ANSWER_LOOK_FIRST_S,
    TRAY_ANSWER_LOOK_MAX_S,
    TRAY_ANSWER_S,
    TRAY_POLL_WAIT_S,
    TRAY_SEND_MAX_S,
    TRAY_SMALL_BYTES,
)
from headway.wire import tray

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.agent.transport.http import TaskName
    from headway.spool.layout import TaskFile

REFRESH_AFTER = 4  # looks in vain; a folder on a local disk has answered by then
GROWTH = 1.4
# a small batch waits so many of the last one's, so that a server with many tasks is asked less
# often
ROUND_TRIPS = 3


class TrayChannel(Channel):
    def __init__(self, folder: str, task: "TaskName") -> None:
        super().__init__(folder)
        self._task = task
        self._run, self._number = int.from_bytes(os.urandom(4), "little"), 0
        self._name = ""  # of the request that lies there
        self._asked: tuple[str, list[bytes | memoryview]] = ("", [])  # until it is put there
        self._is_data = False
        # when the last one was put there, and when a small one may be next
        self._put_s = self._next_s = 0.0
        self._pause_s = TRAY_ANSWER_LOOK_FIRST_S
        self._looks = 0

    def renew(self, task: "TaskFile") -> None:
        self.path = task.tray

    def poll_wait_s(self, now_s: float) -> float:
        return TRAY_POLL_WAIT_S

    def fileno(self) -> int:
        return -1

    @property
    def wants_write(self) -> bool:
        return False

    def start(
        self,
        path: str,
        body: "Sequence[bytes | memoryview]",
        now_s: float,
        timeout_s: float,
        kind: str = "json",
    ) -> Answer | None:
        assert not self.busy
        self._asked = (path, list(body))
        self._is_data = kind == "batch"
        self.busy, self.deadline_s, self._name = True, now_s + max(timeout_s, TRAY_ANSWER_S), ""
        if self._is_data and now_s < self._next_s and sum(map(len, body)) < TRAY_SMALL_BYTES:
            self.due_s = self._next_s
            return None
        return self._put(now_s)

    def _put(self, now_s: float) -> Answer | None:
        path, body = self._asked
        self._number += 1
        name = tray.name_of(self._task, self._run, self._number)
        try:
            tray.check(self.path)
            tray.send(self.path, name, path, body)
        except OSError as error:
            self.close()
            return Answer(
                None, b"", f"no request can be put into {self.path}: {error.strerror or error}"
            )
        except HeadwayError as error:
            self.close()
            return Answer(None, b"", error.message)
        self._name, self._put_s, self._asked = name, now_s, ("", [])  # the pieces are large
        self._pause_s, self._looks = TRAY_ANSWER_LOOK_FIRST_S, 0
        self.due_s = now_s + self._pause_s
        return None

    def step(self, now_s: float) -> Answer | None:
        if not self.busy or not self.is_due(now_s):
            return None
        if not self._name:
            return self._put(now_s)
        self._looks += 1
        if self._looks > REFRESH_AFTER:
            tray.refresh(self.path)
        found = self._look()
        if found is not None:
            if self._is_data:
                self._next_s = self._put_s + min(
                    TRAY_SEND_MAX_S, ROUND_TRIPS * (now_s - self._put_s)
                )
            self.close()
            return Answer(found.status, found.body)
        if now_s >= self.deadline_s:
            self.close()
            return Answer(None, b"", f"nobody has answered in {self.path}")
        self._pause_s = min(TRAY_ANSWER_LOOK_MAX_S, self._pause_s * GROWTH)
        self.due_s = now_s + self._pause_s
        return None

    def _look(self) -> tray.Answer | None:
        try:
            return tray.answer_to(self.path, self._name)
        except (OSError, HeadwayError):
            # not all of it is seen yet, or the file server is away: the deadline decides
            return None

    def close(self) -> None:
        if self._name:
            tray.forget(self.path, self._name)
        self.busy, self.due_s, self._name, self._asked = False, float("inf"), "", ("", [])
