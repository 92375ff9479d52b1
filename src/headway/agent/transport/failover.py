"""The ways to the server, best first: its socket, the network, a shared folder. The shipper comes
here by `http.py`.

A request that does not get through on one way goes out again on the next one at once: the server
cuts what it has already. Data stays on the way that worked last; questions for commands, which can
wait, also try better ways from time to time, so that a way that is back is used again. A token or a
pin that is refused is read again from the task file (F40), and the other ways go on meanwhile.
"""

from __future__ import annotations

from headway.agent.transport.http import Answer, Channel, TaskName
from headway.model.errors import HeadwayError
from headway.model.limits import WAY_AGAIN_FIRST_S, WAY_AGAIN_MAX_S, WAY_AGAIN_NEVER_MAX_S
from headway.spool.layout import TaskFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from headway.spool.files import Files

SOCKET, NETWORK, FOLDER = "its socket", "the network", "a folder"
# another server answers there, or this one does not know us any more
NOT_OURS = (401, 403, 404, 429)
NEVER_S = float("inf")
POLL_WAIT_MIN_S = 2.0


class _Way:
    def __init__(self, name: str) -> None:
        self.name = name
        self.again_s = 0.0  # when it may be tried again
        self.pause_s = WAY_AGAIN_FIRST_S
        self.trouble = ""
        self.worked = False  # ever


class Ways:
    """What is known of the ways; one for all channels of a task."""

    def __init__(
        self, task_dir: str, task: TaskFile, say: "Callable[[str], None]", files: "Files"
    ) -> None:
        self.task, self._task_dir, self._say, self._files = task, task_dir, say, files
        present = ((SOCKET, task.socket), (NETWORK, task.tls), (FOLDER, task.tray))
        self.all = [_Way(name) for name, given in present if given]
        self.at = 0
        self.version = 0  # grows when the task file has changed

    def order(self, now_s: float, probing: bool) -> list[int]:
        """Which to try, in this order: the one in use and those below it, then whatever else there
        is.
        """
        better = [i for i in range(self.at) if probing and now_s >= self.all[i].again_s]
        rest = [i for i in range(self.at) if i not in better]
        return [*better, *range(self.at, len(self.all)), *rest]

    def worked(self, index: int) -> None:
        way = self.all[index]
        way.again_s, way.pause_s, way.trouble, way.worked = 0.0, WAY_AGAIN_FIRST_S, "", True
        if index != self.at:
            why = self.all[self.at].trouble if index > self.at else "it works again"
            self._say(
                f"the server is reached through {way.name} now: {why or 'the way before did not work'}"
            )
            self.at = index

    def failed(self, index: int, reason: str, now_s: float) -> None:
        way = self.all[index]
        if index < self.at and reason != way.trouble:
            self._say(f"{way.name} does not lead to the server: {reason}")
        way.trouble, way.again_s = reason, now_s + way.pause_s
        way.pause_s = min(WAY_AGAIN_MAX_S if way.worked else WAY_AGAIN_NEVER_MAX_S, 2 * way.pause_s)

    @property
    def trouble(self) -> str:
        """Why no better way than the one in use works."""
        return "; ".join(way.trouble for way in self.all[: self.at] if way.trouble)

    def again_s(self) -> float:
        """When a better way than the one in use may be tried."""
        return min((way.again_s for way in self.all[: self.at]), default=NEVER_S)

    def reload(self) -> bool:
        """Read the task file again; whether it says anything else than before."""
        try:
            fresh = TaskFile.load(self._task_dir, self._files)
        except (OSError, HeadwayError):
            return False
        return self.renew(fresh)

    def renew(self, fresh: TaskFile) -> bool:
        before, now = (_login(task) for task in (self.task, fresh))
        self.task = fresh
        if before == now:
            return False
        self.version += 1
        for way in self.all:
            way.again_s, way.pause_s = 0.0, WAY_AGAIN_FIRST_S
        return True


def _login(task: TaskFile) -> "tuple[Any, ...]":
    return task.socket, task.token, task.tls, task.tray


class Post(Channel):
    """To the shipper one channel; inside, one for each way, opened when it is needed."""

    def __init__(self, ways: Ways, probing: bool) -> None:
        super().__init__("", ways.task.token)
        self._ways, self._probing = ways, probing
        self._channels: dict[str, Channel] = {}
        self._version = ways.version
        self._current: Channel | None = None
        self._index = 0
        self._left: list[int] = []  # ways that this request has not tried
        self._asked: tuple[str, list[bytes | memoryview], float, str] | None = None
        self._refused: Answer | None = None  # an answer of somebody who does not know us
        self._reloaded = False

    # -- as the shipper sees it

    def renew(self, task: TaskFile) -> None:
        self._ways.renew(task)
        self.token = task.token

    def fileno(self) -> int:
        return -1 if self._current is None else self._current.fileno()

    @property
    def wants_write(self) -> bool:
        return self._current is not None and self._current.wants_write

    def poll_wait_s(self, now_s: float) -> float:
        """Not so long that a better way would have to wait for its next try."""
        using = self._channels.get(self._ways.all[self._ways.at].name)
        longest_s = super().poll_wait_s(now_s) if using is None else using.poll_wait_s(now_s)
        return min(longest_s, max(POLL_WAIT_MIN_S, self._ways.again_s() - now_s))

    def is_due(self, now_s: float) -> bool:
        return self._current is not None and self._current.is_due(now_s)

    def start(
        self,
        path: str,
        body: "Sequence[bytes | memoryview]",
        now_s: float,
        timeout_s: float,
        kind: str = "json",
    ) -> Answer | None:
        assert not self.busy
        self.busy, self._refused, self._reloaded = True, None, False
        self._asked = (path, list(body), timeout_s, kind)
        self._left = self._ways.order(now_s, self._probing)
        return self._try_next(now_s, Answer(None, b"", "there is no way to the server"))

    def step(self, now_s: float) -> Answer | None:
        if self._current is None:
            return None
        answer = self._current.step(now_s)
        return None if answer is None else self._judge(answer, now_s)

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._end()

    # -- inside

    def _try_next(self, now_s: float, last: Answer) -> Answer | None:
        while self._left:
            self._index = self._left.pop(0)
            channel = self._current = self._channel(self._ways.all[self._index].name)
            assert self._asked is not None
            path, body, timeout_s, kind = self._asked
            answer = channel.start(path, body, now_s, timeout_s, kind)
            if answer is None:
                return None
            last = answer
            if self._is_through(answer):
                return self._through(answer)
            self._note(answer, now_s)
        self._end()
        return self._refused or last

    def _judge(self, answer: Answer, now_s: float) -> Answer | None:
        if self._is_through(answer):
            return self._through(answer)
        self._note(answer, now_s)
        return self._try_next(now_s, answer)

    def _is_through(self, answer: Answer) -> bool:
        return answer.status is not None and answer.status not in NOT_OURS

    def _note(self, answer: Answer, now_s: float) -> None:
        """This way does not work now. Where it is about who we are, or who they are, the task file
        may know better.
        """
        way = self._ways.all[self._index]
        self._ways.failed(self._index, answer.reason or _words(way.name, answer.status), now_s)
        if answer.status is not None:
            self._refused = answer
        if not self._reloaded and way.name != FOLDER:
            self._reloaded = True
            if self._ways.reload():
                self.token = self._ways.task.token
                self._left.insert(0, self._index)

    def _through(self, answer: Answer) -> Answer:
        self._ways.worked(self._index)
        self._end()
        return answer

    def _end(self) -> None:
        self.busy, self._current, self._asked, self._left = False, None, None, []
        self.trouble = self._ways.trouble

    def _channel(self, name: str) -> Channel:
        if self._version != self._ways.version:
            for channel in self._channels.values():
                channel.close()
            self._channels.clear()
            self._version = self._ways.version
        if name not in self._channels:
            self._channels[name] = _open(name, self._ways.task)
        return self._channels[name]


def _words(name: str, status: int | None) -> str:
    if status == 404:
        return f"the server at the other end of {name} does not know this task (404)"
    return f"the server does not accept this task's token ({status})"


def _open(name: str, task: TaskFile) -> Channel:
    if name == SOCKET:
        return Channel(task.socket, task.token)
    if name == NETWORK:
        from headway.agent.transport.tls import TlsChannel

        return TlsChannel(task.tls or {}, task.token)
    from headway.agent.transport.tray_client import TrayChannel

    return TrayChannel(task.tray, TaskName(task.uuid, task.attempt, task.task))


def open_ways(
    task_dir: str, task: TaskFile, say: "Callable[[str], None]", files: "Files"
) -> "tuple[Channel, Channel]":
    """(for data, for commands), both over the same ways."""
    ways = Ways(task_dir, task, say, files)
    return Post(ways, probing=False), Post(ways, probing=True)
