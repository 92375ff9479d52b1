"""The view of one job: news into the model, keys to `control`, frames out. Driven by `loop`."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from headway.model.json_types import JsonObject
from headway.model.limits import CONSOLE_LATE_S, CONSOLE_WAIT_S
from headway.views.console import key_actions
from headway.views.console.cells import Line, Size
from headway.views.console.feed import JobFeed
from headway.views.console.frame import frame
from headway.views.console.job_model import Model
from headway.views.console.theme import Theme


class JobView:
    """`stop` is called with `interrupt` or `terminate`. `done` is the job object once it is over
    and all was told.
    """

    def __init__(self, model: Model, feed: JobFeed, stop: Callable[[str], None]) -> None:
        self.model, self.feed, self.stop = model, feed, stop
        self.done: JsonObject | None = None

    def take_news(self) -> bool:
        """Whether there was any."""
        answers = self.feed.take()
        self.model.now = datetime.now(UTC)
        for answer in answers:
            self._take(answer)
        if self.model.lost_since is None and self.feed.silent_s > CONSOLE_WAIT_S + CONSOLE_LATE_S:
            self.model.lost_since = self.model.now - timedelta(seconds=self.feed.silent_s)
        return bool(answers)

    def _take(self, answer: JsonObject) -> None:
        if "lost" in answer:
            self.model.lost_since = self.model.now if answer["lost"] else None
        elif "curves" in answer:
            self.model.take_curves(answer["curves"])
        else:
            self.model.lost_since = None
            self.model.take(answer)
            self.done = answer.get("done") or self.done
            if self.done is not None:
                back = "q goes back" if self.model.listed else "q leaves"
                self.model.notice = f"it has {self.model.state}; {back}"

    def press(self, key: str) -> str | None:
        """`leave` when the person wants to go."""
        deed = key_actions.press(self.model, key)
        if deed in (key_actions.INTERRUPT, key_actions.TERMINATE):
            if self.done is None:
                self.stop(deed)
            return None
        if deed == key_actions.LEAVE and self.done is not None and not self.model.stays:
            return "over"
        return deed

    def frame(self, size: Size, theme: Theme) -> list[Line]:
        return frame(self.model, size, theme)

    @property
    def is_over(self) -> bool:
        """A person who reads back, or types, is not interrupted by the end: the view stays until he
        goes on.
        """
        place = self.model.place
        if self.done is None or self.model.stays:
            return False
        return place.bottom is None and place.mode == "log"
