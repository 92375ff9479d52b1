"""The loop of every live view: wait for keys, news or the next second; draw when there is something
new to see.
"""

import time
from typing import Final, Protocol

from headway.model.limits import CONSOLE_FRAME_S
from headway.views.console.cells import Line, Size
from headway.views.console.screen import GONE, Stage
from headway.views.console.theme import Theme

_REST: Final = 15  # a frame that takes long to make is made seldom: this many times its cost apart


class View(Protocol):
    def take_news(self) -> bool: ...
    def press(self, key: str) -> str | None: ...
    def frame(self, size: Size, theme: Theme) -> list[Line]: ...
    @property
    def is_over(self) -> bool: ...


def show(stage: Stage, view: View) -> str:
    """Until the view is over (`over`), or a key says what to do (its word)."""
    drawn_s, cost_s, size, stale = 0.0, 0.0, (0, 0), True
    frame_s, tick_s = _pace()
    while True:
        stale = view.take_news() or stale
        if view.is_over:
            return "over"
        now_s = time.monotonic()
        stale = stale or stage.size != size or now_s - drawn_s >= tick_s
        pause_s = max(frame_s, cost_s * _REST) if stale else tick_s
        due_s = drawn_s + pause_s - now_s
        if stale and due_s <= 0 and stage.is_ready:
            size, drawn_s, stale = stage.size, now_s, False
            stage.draw(view.frame(size, stage.theme))
            cost_s = time.monotonic() - now_s
            due_s = tick_s
        for key in stage.wait(max(due_s, 0.0) if stage.is_ready else tick_s):
            word = view.press(key) if key != GONE else "leave"
            if word is not None:
                return word
            stale, drawn_s = True, 0.0  # a key is answered at once


def _pace() -> tuple[float, float]:
    """(at least this long between two frames, at most this long): settings of the person."""
    from headway.settings.layers import load

    settings = load(None)
    return max(settings.get("console.frame_s"), CONSOLE_FRAME_S), settings.get("console.tick_s")
