"""Signals to `hw run`: the first Ctrl-C interrupts the job and waits, the second terminates it,
SIGTERM passes on, SIGHUP leaves it running. Called by `run` and `submit --wait`.

Handlers only note what came. A thread tells the server, on a connection of its own, so that a
signal gets through even while the main thread waits for the server or for a slow reader of stdout.
"""

import contextlib
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial

from headway.model.errors import HeadwayError, RefusedError
from headway.views.api.source import Source, job_route, until_reached


class Leave(BaseException):
    """Stop watching at once; the job goes on. `code` is our exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Signals:
    """Installed before the job is submitted: what comes in between is kept until the job has an id
    (`aim`).
    """

    def __init__(self, source: Source, say: Callable[[str], None]) -> None:
        self.source, self.say = source, say
        self.job_id = ""
        self.interrupts = 0
        self._aimed = threading.Event()
        # its put() may be called by a handler
        self._todo: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        threading.Thread(target=self._work, name="signals", daemon=True).start()
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        # What was ignored stays ignored: nohup, and jobs of a shell in the background, rely on it.
        taken = {
            n: signal.signal(n, self._came)
            for n in numbers
            if signal.getsignal(n) is not signal.SIG_IGN
        }
        try:
            yield
        finally:
            for number, before in taken.items():
                signal.signal(number, before)

    def aim(self, job_id: str) -> None:
        self.job_id = job_id
        self._aimed.set()

    def _came(self, number: int, _: object) -> None:
        if number == signal.SIGHUP:
            raise Leave(128 + number)
        if number == signal.SIGTERM:
            self._todo.put(("signal", number))
            return
        self.interrupts += 1
        if self.interrupts > 2:
            raise Leave(128 + number)
        self._todo.put(("signal", number) if self.interrupts == 1 else ("abort", number))

    def _work(self) -> None:
        while True:
            what, number = self._todo.get()
            self._aimed.wait()
            if what == "abort":
                self.say(f"hw: terminating {self.job_id}")
            elif number == signal.SIGINT:
                self.say(f"hw: interrupting {self.job_id}; Ctrl-C again terminates it")
            else:
                self.say(f"hw: passing SIGTERM on to {self.job_id}")
            try:
                until_reached(partial(self._tell, what, number), lambda _: None)
            except HeadwayError as error:
                self.say(f"hw: {error.message}")

    def _tell(self, what: str, number: int) -> None:
        source = self.source.again()
        try:
            if what == "signal":
                try:
                    source.post(job_route(self.job_id, "signal"), {"signal": number})
                    return
                except RefusedError:
                    # it has no process yet, so there is nothing to interrupt: take it out of the
                    # queue
                    pass
            source.post(job_route(self.job_id, "abort"), {})
        except RefusedError:
            return  # it has ended meanwhile, which the main thread tells
        finally:
            source.close()
