"""Commands from the server: a long-polled request that is also the heartbeat, and doing what it
brings, once each.

Called by the shipper's loop. A command is handed to `do`, which says whether it is done; those that
are done are told with the next poll. A server that restarts sends again what it was not told.
"""

from __future__ import annotations

import json

from headway.agent.transport.http import Answer, Channel, TaskName
from headway.model.limits import BACKOFF_FIRST_S, BACKOFF_MAX_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.model.json_types import JsonObject

ANSWER_S = 15.0  # beyond the time that the server may wait
SEQS_MAX = 1024  # remembered; older ones are long forgotten by the server


class Commands:
    def __init__(self, channel: Channel, do: "Callable[[JsonObject], bool]") -> None:
        self.channel, self._do = channel, do
        self.next_s = 0.0
        self._done: list[int] = []  # to be told
        self._told: list[int] = []  # in the request that is under way
        self._seen: dict[int, None] = {}  # in order of arrival
        self._failures = 0

    def start(
        self, task: TaskName, lag_bytes: int, wall_ns: int, now_s: float, chance: float
    ) -> None:
        self._told, wait_s = list(self._done), self.channel.poll_wait_s(now_s)
        body = {
            "task": {"uuid": task.uuid, "attempt": task.attempt, "task": task.task},
            "wait_s": 0.0 if self._failures else wait_s,
            "done": self._told, "now_ns": wall_ns, "lag_bytes": lag_bytes, "trouble": self.channel.trouble,
        }  # fmt: skip
        answer = self.channel.start(
            "/agent/poll", [json.dumps(body).encode()], now_s, wait_s + ANSWER_S
        )
        if answer is not None:
            self.take(answer, now_s, chance)

    def take(self, answer: Answer, now_s: float, chance: float) -> None:
        commands = _commands(answer)
        if commands is None:
            pause_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(self._failures, 20))
            self._failures += 1
            self.next_s = now_s + pause_s * (0.5 + 0.5 * chance)
            return
        self._failures, self.next_s = 0, now_s
        self._done = [seq for seq in self._done if seq not in self._told]
        for command in commands:
            seq = command["seq"]
            if seq not in self._seen:
                self._seen[seq] = None
                if self._do(command):
                    self.finish(seq)
            elif seq not in self._done and seq in self._told:
                self._done.append(seq)  # it was told and the server still has it
            else:
                # it is being done; the server need not be asked without pause
                self.next_s = now_s + BACKOFF_FIRST_S
        while len(self._seen) > SEQS_MAX:
            self._seen.pop(next(iter(self._seen)))

    def finish(self, seq: int) -> None:
        """The command is done."""
        if seq not in self._done:
            self._done.append(seq)


def _commands(answer: Answer) -> "list[JsonObject] | None":
    """None when the server could not be asked."""
    if answer.status != 200:
        return None
    try:
        rows = json.loads(answer.body)["commands"]
        return [
            row
            for row in rows
            if isinstance(row.get("seq"), int) and isinstance(row.get("do"), str)
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
