"""Calls that may hang (server/control/blocking_calls.py): who is in a hurry gets the late answer
the next time.
"""

import asyncio
import threading

import pytest

from headway.model.errors import UnreachableError
from headway.server.control.blocking_calls import HANGING_MAX, THREADS, Calls, LateError
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
        await calls.run(
            "anything", wait_until, lambda: not calls.hangs("a") and not calls.hangs("b")
        )
        calls.forget("b")
        with pytest.raises(UnreachableError, match="away"):
            await calls.run("a", lambda: 1, patience_s=5.0)
        assert await calls.run("b", lambda: 1, patience_s=5.0) == 1
        calls.close()

    asyncio.run(inside())


def test_who_has_not_answered_in_time_is_not_waited_for_until_it_has() -> None:
    """A look has many questions; one that is away holds it with the first."""

    async def inside() -> None:
        calls, gate = Calls(lambda: None), threading.Event()
        with pytest.raises(LateError):
            await calls.run("jobs", lambda: gate.wait() and 1, patience_s=0.01, of="lab")
        with pytest.raises(LateError):  # with all the patience there is, this would be an answer
            await calls.run("room", lambda: gate.wait() and 2, patience_s=60.0, of="lab")
        assert await calls.run("room of another", lambda: 3, patience_s=60.0, of="other") == 3
        gate.set()
        await calls.run(
            "anything", wait_until, lambda: not calls.hangs("jobs") and not calls.hangs("room")
        )
        assert await calls.run("plans", lambda: 4, patience_s=60.0, of="lab") == 4
        calls.close()

    asyncio.run(inside())


def test_one_that_says_it_cannot_be_reached_is_not_waited_for_either() -> None:
    async def inside() -> None:
        calls, gate = Calls(lambda: None), threading.Event()

        def fails() -> None:
            raise UnreachableError("it is away")

        with pytest.raises(UnreachableError, match="away"):
            await calls.run("jobs", fails, patience_s=60.0, of="lab")
        with pytest.raises(LateError):
            await calls.run("room", gate.wait, patience_s=60.0, of="lab")
        gate.set()
        calls.close()

    asyncio.run(inside())


def test_one_that_hangs_holds_a_few_threads_and_not_all() -> None:
    async def inside() -> None:
        calls, gate, begun = Calls(lambda: None), threading.Event(), []

        def hangs(k: int) -> int:
            begun.append(k)
            gate.wait()
            return k

        for k in range(2 * THREADS):
            with pytest.raises(LateError):
                await calls.run(f"rest of {k}", hangs, k, patience_s=0.01, of="lab")
        assert await calls.run("the store", lambda: 1) == 1  # it would wait for a thread
        assert sorted(begun) == list(range(HANGING_MAX))
        gate.set()
        await calls.run(
            "anything", wait_until, lambda: not any(calls.hangs(f"rest of {k}") for k in begun)
        )
        # it came late
        assert await calls.run("rest of 0", hangs, 100, patience_s=60.0, of="lab") == 0
        assert await calls.run("rest of 50", hangs, 50, patience_s=60.0, of="lab") == 50
        calls.close()

    asyncio.run(inside())
