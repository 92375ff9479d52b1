"""What the parts of the simulation share: time, chance, faults, and a network between agents and
server.

A seed turns some faults on and others off (swarm testing): a system in which everything goes wrong
at once never gets far enough to go wrong in interesting ways.
"""

import random
from collections.abc import Callable
from typing import Any

from headway.model.limits import SEND_TIMEOUT_S
from headway.testing.clock import Agenda, Clock

# fault -> the highest rate per opportunity that a seed may have
FAULTS: dict[str, float] = {
    "request lost": 0.3,
    "reply lost": 0.3,
    "request repeated": 0.3,
    "request late": 0.3,
    "server dies before a commit": 0.01,
    "server dies after a commit": 0.01,
    "server dies before a call": 0.005,
    "server dies after a call": 0.005,
    "server disk full": 0.05,
    "slow call": 0.2,
    "submit not heard": 0.3,
    "submit unanswered": 0.3,
    "engine blind": 0.2,
    "shim dies at birth": 0.1,
    "shim dies": 0.03,
    "rank refused": 0.03,
    "spool disk full": 0.2,
    "torn write": 0.7,
    "cursor lost": 0.7,
    "cursor old": 0.7,
    "cursor garbage": 0.7,
    # once every few seconds, one of those that are on
    "kill the server": 1.0,
    "kill a shipper": 1.0,
    "kill a shim": 0.5,
    "kill a rank": 0.5,
    "stop an agent for a while": 1.0,
    "set the clock": 1.0,
    "small spool": 1.0,
    "housekeeping": 1.0,
}

Reply = tuple[int, Any]  # status of HTTP (0: no answer), answer
NO_REPLY: Reply = (0, None)


class Violation(AssertionError):
    """A promise was broken."""


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.clock = Clock()
        self.agenda = Agenda(self.clock)
        self.chaos = True
        self.rates = self._swarm()
        self.struck: dict[str, int] = {}
        self.server: Any = None  # `sim_server.SimServer`
        self.history: Any = None  # `sim_check.History`
        self._pid = 100

    def _swarm(self) -> dict[str, float]:
        if self.random.random() < 0.05:
            return {}  # some seeds without any fault: then nothing but success is allowed
        share = self.random.choice((0.15, 0.4, 0.7))
        on = [name for name in FAULTS if self.random.random() < share]
        return {name: FAULTS[name] * self.random.random() ** 2 for name in on}

    def is_on(self, fault: str) -> bool:
        return self.chaos and fault in self.rates

    def strikes(self, fault: str) -> bool:
        """Whether a fault happens at this opportunity."""
        if not self.chaos or fault not in self.rates or self.random.random() >= self.rates[fault]:
            return False
        self.struck[fault] = self.struck.get(fault, 0) + 1
        return True

    def new_pid(self) -> int:
        self._pid += 1
        return self._pid

    def between(self, low: float, high: float) -> float:
        return self.random.uniform(low, high)

    # -- the network

    def request(self, call: Callable[[], Reply], on_reply: Callable[[Reply], None]) -> None:
        """One request, lost, late, repeated or answered; the caller hears of it once, by its
        timeout at the latest.
        """
        timeout_s = SEND_TIMEOUT_S * self.between(0.05, 1.0)
        answered = [False]

        def answer(reply: Reply) -> None:
            if not answered[0]:
                answered[0] = True
                on_reply(reply)

        def arrive() -> None:
            reply = call()
            if not self.strikes("reply lost"):
                self.agenda.after(self.between(0.001, 0.05), lambda: answer(reply))

        self.agenda.after(timeout_s, lambda: answer(NO_REPLY))
        delay_s = self.between(0.001, 0.05)
        # it may even arrive after its sender has given up, behind later ones
        if self.strikes("request late"):
            delay_s = self.between(0.5, 60.0)
        if not self.strikes("request lost"):
            self.agenda.after(delay_s, arrive)
        if self.strikes("request repeated"):
            self.agenda.after(delay_s + self.between(0.001, 90.0), lambda: void(call()))


def void(_: object) -> None:
    """The answer to a repeated request reaches nobody."""
