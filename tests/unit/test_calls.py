"""Calls that may hang (server/calls.py): who is in a hurry gets the late answer the next time."""

import asyncio
import threading

import pytest

from headway.model.errors import UnreachableError
from headway.server.calls import Calls, LateError
from tests.waiting import wait_until


def test_an_answer_that_comes_late_is_the_next_ones_and_is_given_once() -> None:
    async def inside() -> None:
        calls, gate, late = Calls(lambda: None), threading.Event(), threading.Event()
        calls._on_late = late.set
        with pytest.raises(LateError, match=r"within 0\.01 s"):
            await calls.run("slurm", lambda: gate.wait() and 1, patience_s=0.01)
        with pytest.raises(LateError, match="still waits"):
            await calls.run("slurm", lambda: 2, patience_s=0.01)
        gate.set()
        await calls.run("anything", late.wait)
        assert not calls.hangs("slurm")
        assert await calls.run("slurm", lambda: 3, patience_s=5.0) == 1
        assert await calls.run("slurm", lambda: 4, patience_s=5.0) == 4
        calls.close()

    asyncio.run(inside())


def test_a_late_failure_is_told_too_and_what_nobody_asks_for_any_more_is_forgotten() -> None:
    async def inside() -> None:
        calls, gate, late = Calls(lambda: None), threading.Event(), threading.Event()
        calls._on_late = late.set

        def fails() -> None:
            gate.wait()
            raise UnreachableError("it is away")

        for name in ("a", "b"):
            with pytest.raises(LateError):
                await calls.run(name, fails, patience_s=0.01)
        gate.set()
        await calls.run("anything", wait_until, lambda: not calls.hangs("a") and not calls.hangs("b"))
        calls.forget("b")
        with pytest.raises(UnreachableError, match="away"):
            await calls.run("a", lambda: 1, patience_s=5.0)
        assert await calls.run("b", lambda: 1, patience_s=5.0) == 1
        calls.close()

    asyncio.run(inside())
