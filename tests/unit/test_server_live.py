"""News for those who wait: nothing is missed, and who does not listen costs nothing (F38)."""

import asyncio
import threading

from headway.server.live import Live


def test_what_is_committed_after_start_wakes_the_waiter() -> None:
    async def run() -> None:
        live = Live()
        with live.watch(7) as watch:
            watch.start()
            threading.Thread(target=live.notify, args=(7, "logs")).start()
            assert await watch.wait(20) == {"logs"}
            watch.start()
            assert await watch.wait(0.01) == set()

    asyncio.run(run())


def test_news_between_the_start_and_the_wait_are_not_missed() -> None:
    async def run() -> None:
        live = Live()
        with live.watch(7) as watch:
            watch.start()
            await asyncio.to_thread(live.notify, 7, "facts")
            await asyncio.to_thread(live.notify, 7, "metrics")
            await asyncio.sleep(0)
            assert await watch.wait(20) >= {"facts"}

    asyncio.run(run())


def test_a_thousand_commits_are_one_wake_up() -> None:
    async def run() -> None:
        live, delivered = Live(), list[int]()
        real = live._deliver

        def count() -> None:
            delivered.append(1)
            real()

        live._deliver = count  # type: ignore[method-assign]
        with live.watch(7) as watch:
            watch.start()

            def commit() -> None:
                for _ in range(1000):
                    live.notify(7, "logs")

            thread = threading.Thread(target=commit)
            thread.start()
            thread.join()  # the loop does not run meanwhile
            assert await watch.wait(20) == {"logs"}
        assert len(delivered) == 1

    asyncio.run(run())


def test_a_job_that_nobody_watches_leaves_nothing_behind() -> None:
    async def run() -> None:
        live = Live()
        live.notify(1, "logs")
        assert not live._news
        with live.watch(2), live.watch(2):
            assert live.waiting == 2
        assert live.waiting == 0 and not live._watches

    asyncio.run(run())


def test_each_watcher_hears_of_its_own_job_only() -> None:
    async def run() -> None:
        live = Live()
        with live.watch(1) as one, live.watch(2) as two:
            one.start()
            two.start()
            live.notify(1, "logs")
            assert await one.wait(20) == {"logs"}
            assert await two.wait(0.01) == set()

    asyncio.run(run())


def test_a_change_of_any_job_is_told_once_in_the_loop() -> None:
    async def run() -> None:
        told: list[int] = []
        live = Live(on_job=lambda: told.append(threading.get_ident()))
        await asyncio.to_thread(live.notify, 99, "job")
        await asyncio.sleep(0.01)
        assert told == [threading.get_ident()]

    asyncio.run(run())


def test_the_end_of_the_server_wakes_everyone_and_nobody_waits_again() -> None:
    async def run() -> None:
        live = Live()
        with live.watch(1) as watch:
            watch.start()
            asyncio.get_running_loop().call_soon(live.close)
            await watch.wait(20)
            watch.start()
            await asyncio.wait_for(watch.wait(20), 5)

    asyncio.run(run())


def test_news_after_the_loop_has_ended_are_harmless() -> None:
    async def run() -> Live:
        live = Live()
        live._watches[1] = set()
        return live

    live = asyncio.run(run())
    live.notify(1, "logs")
