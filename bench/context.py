"""What every case is given: how often to repeat, where to work, which peers there are."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.home import Home, headway_home
from bench.machine import Machine
from bench.peer import PEERS, Peer
from bench.result import Measure, Result


@dataclass(slots=True)
class Context:
    work: Path
    rounds: int
    quick: bool
    peers: list[Peer]
    missing: dict[str, str]
    machine: Machine
    _folders: int = field(default=0)

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def folder(self, name: str) -> Path:
        """A new, empty folder."""
        self._folders += 1
        path = self.work / f"{self._folders:03d}-{name}"
        path.mkdir(parents=True)
        return path

    @contextmanager
    def home(self, *, server: bool = True) -> Iterator[Home]:
        self._folders += 1
        with headway_home(self.work / f"h{self._folders:03d}", server=server) as home:
            yield home

    def absent(self, result: Result) -> None:
        """Say in the table which peers are missing, and why."""
        result.measures += [
            Measure(name, [], self.missing[name]) for name in PEERS if name in self.missing
        ]

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


Case = Callable[[Context], Iterable[Result]]
