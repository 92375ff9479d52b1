"""`server/tray_server.py`: every request is answered, each by its own task's rights, however the
folder looks.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.model.errors import RefusedError
from headway.model.limits import TRAY_HALF_S, TRAY_SWEEP_S, TRAY_TASK_FILES_MAX
from headway.server.http.request import Reply
from headway.server.tray_server import Tray, Trays
from headway.wire import tray

TASK = tray.Task("01234567-89ab-cdef-0123-456789abcdef", 1, "worker-0")


def name(number: int, task: tray.Task = TASK) -> str:
    return tray.name_of(task, 1, number)


async def until(seen: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not seen():
            await asyncio.sleep(0.001)


class Bench:
    """A tray, a clock, and a server that notes what it is asked."""

    def __init__(self, folder: str) -> None:
        self.folder, self.now_s = folder, 0.0
        self.asked: list[tuple[str, str, bytes]] = []
        self.gate: asyncio.Event | None = None
        self.status = 200
        tray.make(folder)
        self.tray = Tray(folder, self.answer, lambda: self.now_s)

    async def answer(self, task: str, path: str, body: bytes) -> Reply:
        self.asked.append((task, path, body))
        if self.gate is not None:
            await self.gate.wait()
        return Reply(b"yes", self.status)

    async def look(self) -> int:
        found = await self.tray.look()
        if self.gate is None:
            await until(lambda: not self.tray._in_hand)
        return found

    def send(
        self, number: int, path: str = "/agent/poll", body: bytes = b"{}", task: tray.Task = TASK
    ) -> None:
        tray.send(self.folder, name(number, task), path, [body])


class Refusing(tray.Box):
    """One that is reached through ssh, on a machine that cannot run what it is sent."""

    refused: tuple[str, ...] = ("waiting", "reply")

    def waiting(self) -> list[str]:
        self._check("waiting")
        return super().waiting()

    def reply(self, name: str, status: int, body: bytes) -> None:
        self._check("reply")
        super().reply(name, status, body)

    def _check(self, what: str) -> None:
        if what in self.refused:
            raise RefusedError("there is no Python there", "load one")


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Callable[[Bench], Any]], None]:
    async def begin(work: Callable[[Bench], Any]) -> None:
        bench = Bench(str(tmp_path / "tray"))
        try:
            await work(bench)
        finally:
            bench.tray.close()

    return lambda work: asyncio.run(begin(work))


def test_requests_of_all_tasks_are_answered_in_one_look(run: Any) -> None:
    async def work(b: Bench) -> None:
        other = tray.Task(TASK.uuid, 2, "evaluator-1")
        b.send(1, "/agent/ingest", b"batch")
        b.send(1, task=other)
        assert await b.look() == 2
        assert sorted(b.asked) == [
            (str(TASK), "/agent/ingest", b"batch"),
            (str(other), "/agent/poll", b"{}"),
        ]
        assert tray.waiting(b.folder) == []
        assert tray.answer_to(b.folder, name(1)) == tray.Answer(200, b"yes")
        assert await b.look() == 0

    run(work)


def test_no_route_but_those_of_the_task_is_reached_through_a_folder(run: Any) -> None:
    async def work(b: Bench) -> None:
        for number, path in enumerate(("/agent/register", "/api/jobs", "/agent/guests", "/", "")):
            b.send(number, path)
            await b.look()
            answer = tray.answer_to(b.folder, name(number))
            assert answer is not None
            assert answer.status == 403
        assert b.asked == []

    run(work)


def test_a_poll_that_waits_keeps_nobody_else_waiting(run: Any) -> None:
    async def work(b: Bench) -> None:
        b.gate = asyncio.Event()
        for number in range(TRAY_TASK_FILES_MAX + 3):
            b.send(number)
        await b.look()
        await until(lambda: len(b.asked) == TRAY_TASK_FILES_MAX)
        assert await b.look() == 0  # one task cannot take all of the server's attention
        other = tray.Task(TASK.uuid, 1, "worker-1")
        b.send(1, task=other)
        assert await b.look() == 1
        b.gate.set()
        b.gate = None
        while tray.waiting(b.folder):
            await b.look()
        assert len(b.asked) == TRAY_TASK_FILES_MAX + 4

    run(work)


def test_what_is_not_ours_is_neither_read_nor_answered_and_told_once(run: Any, caplog: Any) -> None:
    async def work(b: Bench) -> None:
        os.symlink("/etc/passwd", f"{b.folder}/out/{name(1)}")
        b.send(2)
        os.chmod(f"{b.folder}/out/{name(2)}", 0o644)
        b.send(3)
        for _ in range(3):
            await b.look()
        assert [body for _, _, body in b.asked] == [b"{}"]
        assert tray.answer_to(b.folder, name(1)) is None
        assert tray.answer_to(b.folder, name(2)) is None

    run(work)
    assert sum("it was not read" in record.message for record in caplog.records) == 2


def test_a_request_that_is_seen_in_part_is_read_when_it_is_whole_and_refused_when_it_never_is(
    run: Any,
) -> None:
    async def work(b: Bench) -> None:
        for number in (1, 2):
            b.send(number)
        path = Path(b.folder, "out", name(1))
        whole = path.read_bytes()
        for number in (1, 2):
            Path(b.folder, "out", name(number)).write_bytes(whole[:20])
        await b.look()
        assert b.asked == []
        path.write_bytes(whole)
        b.now_s += TRAY_HALF_S / 2
        await b.look()
        assert len(b.asked) == 1
        b.now_s += TRAY_HALF_S
        await b.look()
        answer = tray.answer_to(b.folder, name(2))
        assert answer is not None
        assert answer.status == 400
        assert tray.waiting(b.folder) == []

    run(work)


def test_a_request_that_was_taken_back_gets_no_answer(run: Any) -> None:
    async def work(b: Bench) -> None:
        b.gate = asyncio.Event()
        b.send(1)
        await b.look()
        tray.forget(b.folder, name(1))
        b.gate.set()
        b.gate = None
        await b.look()
        assert os.listdir(f"{b.folder}/in") == []

    run(work)


def test_a_name_that_a_stale_cache_shows_again_is_not_answered_again(run: Any) -> None:
    async def work(b: Bench) -> None:
        b.send(1)
        await b.look()
        tray.forget(b.folder, name(1))
        b.send(1)
        assert await b.look() == 0
        assert len(b.asked) == 1

    run(work)


def test_what_nobody_takes_away_goes_with_the_second_sweep(run: Any) -> None:
    async def work(b: Bench) -> None:
        b.send(1)
        await b.look()
        for _ in range(2):
            assert os.listdir(f"{b.folder}/in") == [name(1)]
            b.now_s += TRAY_SWEEP_S
            await b.look()
        assert os.listdir(f"{b.folder}/in") == []

    run(work)


def test_a_folder_that_is_not_there_is_told_once_and_looked_at_again(run: Any, caplog: Any) -> None:
    async def work(b: Bench) -> None:
        os.rename(b.folder, f"{b.folder}-away")
        for _ in range(3):
            assert await b.look() == 0
        os.rename(f"{b.folder}-away", b.folder)
        b.send(1)
        assert await b.look() == 1

    run(work)
    assert sum("cannot be read" in record.message for record in caplog.records) == 1


def test_a_tray_behind_ssh_that_refuses_for_a_while_is_followed_again(
    run: Any, caplog: Any
) -> None:
    async def work(b: Bench) -> None:
        box = b.tray._box = Refusing(b.folder)
        b.send(1)
        assert await b.look() == 0
        box.refused = ("reply",)
        assert [await b.look() for _ in range(3)] == [1, 0, 0]  # news once, so that nobody hurries
        assert tray.answer_to(b.folder, name(1)) is None
        box.refused = ()
        await b.look()
        assert tray.answer_to(b.folder, name(1)) == tray.Answer(200, b"yes")

    run(work)
    assert sum("there is no Python there" in record.message for record in caplog.records) == 2


def test_an_engine_is_told_where_the_server_is_and_its_tray_is_followed(tmp_path: Path) -> None:
    class Engine:
        def __init__(self) -> None:
            self.tray: Path | None = tmp_path / "tray"
            self.told: list[Any] = []

        def readdress(self, tls: Any) -> int:
            self.told.append(tls)
            return 1

    async def work() -> None:
        engine, b = Engine(), Bench(str(tmp_path / "tray"))

        async def reach() -> dict[str, Any]:
            return {"addresses": ["192.0.2.1:1"], "pin": "00"}

        trays = asyncio.create_task(Trays(lambda: [engine], b.answer, reach).run())
        b.send(1)
        await until(lambda: engine.told and tray.answer_to(b.folder, name(1)) is not None)
        assert engine.told == [{"addresses": ["192.0.2.1:1"], "pin": "00"}]
        assert tray.answer_to(b.folder, name(1)) == tray.Answer(200, b"yes")
        trays.cancel()

    asyncio.run(work())
