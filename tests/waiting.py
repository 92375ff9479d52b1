"""Waiting for a condition in tests: poll with a deadline, never a bare sleep."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(probe: Callable[[], T], timeout_s: float = 60.0, what: str = "the condition") -> T:
    """Return the first truthy value of `probe`; fail with `what` after `timeout_s`.

    A probe that starts a program is not put again at once: what it waits for needs the cores, too.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        asked = time.monotonic()
        value = probe()
        now = time.monotonic()
        if value:
            return value
        if now > deadline:
            raise AssertionError(
                f"{what} did not come true within {timeout_s:g} s; last value: {value!r}"
            )
        time.sleep(min(max(0.02, now - asked), 0.5))
