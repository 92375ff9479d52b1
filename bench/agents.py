"""What 64 agents of 8 ranks send, from one process: `agents.py SOCKET AGENTS RANKS PER_S SECONDS`
(case `agents`).

Each rank writes real frames, as the client would, at moments of its own. Each agent has a
connection of its own and does what a shipper does: it looks every 40 ms, posts what has grown as
one batch, and has one batch on its way at most. Reads tasks and tokens as JSON from stdin; says
what was written, how many posts it took and how long answers took.
"""

import json
import random
import selectors
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench import dataset
from headway.model.limits import TAIL_INTERVAL_ACTIVE_S
from headway.wire.batch import Part, TaskKey, encode

NAMES = ("loss", "lr", "grad_norm", "tokens")


def stream_name(rank: int) -> str:
    return f"metrics-{rank}-{rank + 1}-abcdef.0"


@dataclass(slots=True)
class Rank:
    """One process: `data` is its whole stream, of which `written` bytes are there by now."""

    name: str
    data: bytes
    head_bytes: int
    frame_bytes: int
    due_s: list[float]  # when each record is written
    calls: int = 0
    sent: int = 0

    def written(self, now_s: float) -> int:
        while self.calls < len(self.due_s) and self.due_s[self.calls] <= now_s:
            self.calls += 1
        return self.head_bytes + self.calls * self.frame_bytes


def make_rank(rank: int, records: int, per_s: int, chance: random.Random) -> Rank:
    times_ns = dataset.FIRST_TIME_NS + np.arange(records) * 10**9 // per_s
    values = dataset.Records(
        NAMES, np.arange(records), times_ns, np.full((len(NAMES), records), 0.5)
    )
    name = stream_name(rank)
    head, framed = dataset.opening(name, NAMES, rank), dataset.frames(values)
    phase_s = chance.random() / per_s
    due_s = [phase_s + i / per_s for i in range(records)]
    return Rank(name, head + framed, len(head), len(framed) // records, due_s)


@dataclass(slots=True)
class Agent:
    key: TaskKey
    token: str
    wire: socket.socket
    ranks: list[Rank]
    look_s: float
    posted_s: float | None = None  # when the batch left that is not answered yet
    rest: bytes = b""
    posts: int = 0
    waits_s: list[float] = field(default_factory=list)

    def look(self, now_s: float) -> None:
        if self.posted_s is not None or now_s < self.look_s:
            return
        self.look_s = now_s + TAIL_INTERVAL_ACTIVE_S
        parts = []
        for rank in self.ranks:
            written = rank.written(now_s)
            if written > rank.sent:
                parts.append(Part(rank.name, "records", rank.sent, rank.data[rank.sent : written]))
                rank.sent = written
        if parts:
            self._post(encode(self.key, parts, time.time_ns()), now_s)

    def _post(self, body: bytes, now_s: float) -> None:
        head = (
            "POST /agent/ingest HTTP/1.1\r\nHost: headway\r\nConnection: keep-alive\r\n"
            f"Authorization: Bearer {self.token}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.wire.sendall(head.encode() + body)
        self.posted_s, self.posts = now_s, self.posts + 1

    def hear(self, now_s: float) -> None:
        self.rest += self.wire.recv(1 << 16)
        head, found, body = self.rest.partition(b"\r\n\r\n")
        if not found:
            return
        length = next(
            int(line.split(b":")[1])
            for line in head.lower().split(b"\r\n")
            if b"content-length" in line
        )
        if len(body) < length:
            return
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise RuntimeError(f"ingest answered {head[:40]!r}: {body[:200]!r}")
        for name, position in json.loads(body)["acks"].items():
            rank = next(rank for rank in self.ranks if rank.name == name)
            if position != rank.sent:
                raise RuntimeError(f"the server is at {position} of {rank.sent} bytes of {name}")
        assert self.posted_s is not None
        self.waits_s.append(now_s - self.posted_s)
        self.rest, self.posted_s = b"", None

    def is_done(self) -> bool:
        return self.posted_s is None and all(rank.sent == len(rank.data) for rank in self.ranks)


def main() -> None:
    path, count, ranks, per_s, seconds = Path(sys.argv[1]), *map(int, sys.argv[2:6])
    chance, chosen, agents = random.Random(7), selectors.DefaultSelector(), []
    for (uuid, attempt, task), token in json.loads(sys.stdin.readline()):
        wire = socket.socket(socket.AF_UNIX)
        wire.connect(str(path))
        made = [make_rank(rank, per_s * seconds, per_s, chance) for rank in range(ranks)]
        agents.append(
            Agent(
                TaskKey(uuid, attempt, task),
                token,
                wire,
                made,
                chance.random() * TAIL_INTERVAL_ACTIVE_S,
            )
        )
        chosen.register(wire, selectors.EVENT_READ, agents[-1])
    assert len(agents) == count
    print("ready", flush=True)
    sys.stdin.readline()
    start_s = time.monotonic()
    while not all(agent.is_done() for agent in agents):
        for key, _ in chosen.select(0.002):
            key.data.hear(time.monotonic() - start_s)
        for agent in agents:
            agent.look(time.monotonic() - start_s)
    waits_s = sorted(wait for agent in agents for wait in agent.waits_s)
    told = {
        "took_s": time.monotonic() - start_s, "posts": sum(agent.posts for agent in agents),
        "points": sum(len(rank.due_s) for agent in agents for rank in agent.ranks) * len(NAMES),
        "median_s": waits_s[len(waits_s) // 2], "p99_s": waits_s[len(waits_s) * 99 // 100],
    }  # fmt: skip
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
