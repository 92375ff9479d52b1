"""A live view of one job from now to its end, and what stays on the terminal afterwards. Called by
`run` and `watch`.

A job that ends within a blink gets no view: its lines are printed as they would be without one.
"""

import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from headway.model.json_types import JsonObject
from headway.model.limits import CONSOLE_END_LINES
from headway.views.api.source import Source
from headway.views.console.event_loop import show
from headway.views.console.feed import JobFeed
from headway.views.console.job_model import Model
from headway.views.console.job_view import JobView
from headway.views.console.log_buffer import Log, Said
from headway.views.console.screen import Stage
from headway.views.console.theme import Theme
from headway.views.console.widgets.log_tail import clock
from headway.views.text import best, job_text
from headway.views.text import format as fmt
from headway.views.text.terminal import DIM, Terminal

_BLINK_S: Final = 0.6  # a shorter job is not worth a view
Job = JsonObject


@dataclass(slots=True)
class Attendance:
    """One job on one terminal. `stop` is called with `interrupt` or `terminate` when the person has
    chosen that.
    """

    source: Source
    terminal: Terminal
    job: Job
    stop: Callable[[str], None]
    ranks: int = 1
    tail: int | None = None  # of a job that has been going on: show its last lines only
    listed: bool = False  # opened from the list of jobs

    def model(self) -> Model:
        log = Log(theme_color=self.terminal.out.color, ascii_only=self.terminal.out.ascii_only)
        ranks = max(self.ranks, job_text.count_processes(self.job))
        state = str(self.job["state"])
        watched = self.tail is not None
        stays = self.listed or (watched and state in fmt.ENDED)
        return Model(self.job, log, ranks, state, watched=watched, listed=self.listed, stays=stays)

    def to_the_end(
        self, on_notice: Callable[[Callable[[str], None]], None] = lambda _: None
    ) -> Job | None:
        """The job object of the end, or None when the person left. `on_notice` gets a way to say
        something.
        """
        model, rung = self.model(), threading.Event()
        theme = Theme(self.terminal.out.color, self.terminal.out.ascii_only)
        stage: Stage | None = None
        feed = JobFeed(
            self.source,
            str(self.job["id"]),
            lambda: stage.wake() if stage else rung.set(),
            self.tail,
        )
        view = JobView(model, feed, self.stop)
        feed.start()
        try:
            opened = self.tail is not None or not self._blink(view, rung)
            if opened:
                on_notice(lambda text: _notice(model, text))
                with Stage(self.terminal.out.fd, theme) as stage:
                    if show(stage, view) == "leave":
                        return view.done if model.stays else None
        finally:
            feed.close()
        self._tell_end(view, opened)
        return view.done

    def _blink(self, view: JobView, rung: threading.Event) -> bool:
        """Whether the job was over before a view was worth it."""
        until_s = time.monotonic() + _BLINK_S
        while not view.is_over and time.monotonic() < until_s:
            rung.wait(max(until_s - time.monotonic(), 0.0))
            rung.clear()
            view.take_news()
        return view.is_over

    def _tell_end(self, view: JobView, opened: bool) -> None:
        assert view.done is not None
        said = list(view.model.log.kept)
        shown = said[-CONSOLE_END_LINES:] if opened else said
        left = view.model.log.total - len(shown)
        if left > 0:
            words = f"… {left:,} lines before: hw logs {fmt.suffix(view.model.job_id)}"
            self.terminal.say(self.terminal.err.style(words, DIM))
        for one in shown:
            self._print(one, view.model.ranks)
        found = best.ask(view.done, self._ask)
        for line in job_text.end_lines(view.done, view.model.events, self.terminal.err, found):
            self.terminal.say(line)

    def _ask(self, question: Callable[[Source], Any]) -> Any:
        """On a connection of its own: ours may be to a server that has gone since."""
        with closing(self.source.again()) as source:
            return question(source)

    def _print(self, said: Said, ranks: int) -> None:
        ours = said.rank < 0 or said.stream in ("stderr", "agent")
        out = self.terminal.err if ours else self.terminal.out
        wide = len(str(max(ranks - 1, 0)))
        whose = "hw" if said.rank < 0 else str(said.rank)
        front = out.style(f"{clock(said.time)}  {whose:>{wide}} │ ", DIM) if ranks > 1 else ""
        text = said.text.removeprefix("hw: ") if front and said.rank < 0 else said.text
        out.write(f"{front}{text}\n")


def _notice(model: Model, text: str) -> None:
    model.log.add(text, time=datetime.now(UTC).isoformat())
