"""The agent's own log, stream `agent`: what a person needs when data does not arrive. Written by
shim and shipper.
"""

from __future__ import annotations

import os
import time

from headway.model.limits import AGENT_LOG_BYTES_MAX

LINE_CHARS_MAX = 2000


class AgentLog:
    """Appends lines; never raises: a full disk must not end the agent."""

    def __init__(self, task_dir: str, who: str) -> None:
        self._who, self._left, self.fd = who, AGENT_LOG_BYTES_MAX, -1
        try:
            self.fd = os.open(
                f"{task_dir}/agent",
                os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW,
                0o600,
            )
        except OSError:  # the folder may be gone (F34); there is nobody left to tell
            return

    def say(self, text: str) -> None:
        now_ns = time.time_ns()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_ns // 1_000_000_000))
        plain = "".join(c if c.isprintable() else "?" for c in text[:LINE_CHARS_MAX])
        line = f"{stamp}.{now_ns // 1_000_000 % 1000:03d}Z {self._who}: {plain}\n".encode(
            errors="replace"
        )
        self._left -= len(line)
        if self._left < 0 or self.fd < 0:
            return
        try:
            os.write(self.fd, line)
        except OSError:  # full or gone; the facts matter more than the talk
            return
