"""Wakes the loop of control, from any thread."""

import asyncio
import contextlib


class Wakeup:
    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None  # while it runs

    def poke(self) -> None:
        """Decide soon. From any thread."""
        loop = self.loop
        if loop is not None:
            # the loop has ended while another thread still finishes
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self.event.set)
