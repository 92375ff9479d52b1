"""Signs of life of the jobs that run: when each last printed, logged or counted, and how regularly.

Fed by the store's listener after every commit, so it is a dictionary look-up and a clock; read by
`hang_watch`. Times are of our own monotonic clock: nobody's wall clock has to be right.
"""

from collections import deque

from headway.diagnose.hang import Pause, usual_interval
from headway.model.limits import HANG_GAPS_KEPT

STEPS = ("metrics", "progress")
SIGNS = ("logs", "records", *STEPS)
TOGETHER_S = 0.2  # signs that come so close are one


class Pulse:
    """Of one attempt of one job."""

    def __init__(self, attempt: int, now_s: float, now_ns: int) -> None:
        self.attempt = attempt
        self.sign_s, self.sign_ns = now_s, now_ns
        self.step_s: float | None = None
        self.step_ns: int | None = None
        self.average_s: float | None = None  # between steps, from what is stored
        self.begun = False  # the first sign was heard
        self.next_s = 0.0  # not looked at closer before
        self.moving: str | None = None  # what moved, when it was looked at closer
        self._gaps: deque[float] = deque(maxlen=HANG_GAPS_KEPT)
        self._step_gaps: deque[float] = deque(maxlen=HANG_GAPS_KEPT)

    def hear(self, now_s: float, now_ns: int, is_step: bool) -> None:
        if is_step:
            if self.step_s is not None and now_s - self.step_s > TOGETHER_S:
                self._step_gaps.append(now_s - self.step_s)
            if self.step_s is None or now_s - self.step_s > TOGETHER_S:
                self.step_s, self.step_ns = now_s, now_ns
        if self.begun and now_s - self.sign_s > TOGETHER_S:
            self._gaps.append(now_s - self.sign_s)
        self.begun = True
        self.sign_s, self.sign_ns = now_s, now_ns
        self.next_s = 0.0

    def pause(self, now_s: float, least_s: float) -> Pause:
        gaps = list(self._step_gaps) if len(self._step_gaps) > 1 else list(self._gaps)
        interval_s = usual_interval(gaps)
        if interval_s is None and self.begun and self.step_s is not None:
            interval_s = self.average_s or TOGETHER_S  # many steps within one look
        if interval_s is None:
            interval_s = self.average_s
        return Pause(
            silent_s=now_s - self.sign_s,
            least_s=least_s,
            interval_s=interval_s,
            longest_s=max(list(self._gaps)[1:], default=0.0),
            stepped=self.step_s is not None or self.average_s is not None,
            last_sign_ns=self.sign_ns if self.begun else None,
            last_step_ns=self.step_ns,
        )
