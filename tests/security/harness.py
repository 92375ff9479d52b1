"""A server in this process, in a thread, with a real store and a stand-in for `control`. Used by
the server's tests.
"""

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import uvloop

from headway.engines.protocol import Waiting
from headway.home.connect import Client, Response
from headway.home.paths import Paths, socket_path
from headway.model.job import Job, JobSpec, State
from headway.server.http.auth import mint
from headway.server.serve import Process
from headway.settings import layers
from headway.store import catalog
from headway.store.database import Store
from headway.wire.batch import TaskKey
from tests.waiting import wait_until

UUID = "00000000-0000-4000-8000-{:012d}"


class FakeControl:
    """Keeps what it was asked for, and makes jobs in the store as the real one would."""

    def __init__(self, store: Store, paths: Paths, settings: Any) -> None:
        self.store, self.calls = store, list[tuple[Any, ...]]()
        self.commands: dict[str, list[dict[str, Any]]] = {}

    def distant(self) -> list[Any]:
        return []

    async def reach(self) -> Any:
        return None

    def be_reached(self, reach: Any) -> None:
        self.reach = reach  # type: ignore[method-assign]

    def tell_monitors(self, outbox: Any) -> None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def heard(self, task: TaskKey) -> None:
        self.calls.append(("heard", task))

    def ask_agents(self, job: Job, command: dict[str, Any]) -> list[str]:
        self.calls.append(("ask_agents", job.id, command))
        return []  # nobody is there to answer

    async def submit(
        self,
        uuid: str,
        spec: Mapping[str, Any],
        env: Mapping[str, str],
        *,
        find_program: bool = False,
        **_: Any,
    ) -> Job:
        self.calls.append(("submit", uuid, dict(spec), dict(env)))
        return await self._write(
            lambda c: catalog.insert_job(c, uuid, JobSpec(**spec), time.time_ns())
        )

    async def abort(self, pk: int) -> Job:
        self.calls.append(("abort", pk))
        return await self._write(lambda c: catalog.load_job(c, pk))

    async def release(self, pk: int) -> Job:
        self.calls.append(("release", pk))
        return await self._write(lambda c: catalog.load_job(c, pk))

    async def attach(
        self, pk: int, rank: int | None = None, task: str | None = None
    ) -> dict[str, Any]:
        self.calls.append(("attach", pk))
        return {}

    async def collect(
        self, clusters: Mapping[str, Mapping[str, Any]], *, dry_run: bool
    ) -> list[dict[str, Any]]:
        self.calls.append(("collect", dict(clusters), dry_run))
        return []

    async def load(self, pk: int) -> Job:
        return await self._write(lambda c: catalog.load_job(c, pk))

    async def explain(self, job: Job) -> Waiting:
        return Waiting("nobody was asked")

    async def signal(self, pk: int, signum: int) -> Job:
        self.calls.append(("signal", pk, signum))
        return await self._write(lambda c: catalog.load_job(c, pk))

    async def resubmit(
        self, pk: int, uuid: str, changes: Mapping[str, Any], env: Mapping[str, str] | None
    ) -> Job:
        self.calls.append(("resubmit", pk, uuid, dict(changes), env))
        old = await self._write(lambda c: catalog.load_job(c, pk))
        spec = JobSpec(**(asdict(old.spec) | dict(changes) | {"parent": old.id}))
        return await self._write(lambda c: catalog.insert_job(c, uuid, spec, time.time_ns()))

    async def delete(self, pk: int) -> None:
        self.calls.append(("delete", pk))
        await self._write(lambda c: catalog.mark_deleted(c, pk, time.time_ns()))

    async def register(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self.calls.append(("register", dict(body)))
        return {"id": "x-00000", "token": "a.b", "attempt": 1, "task": "worker-0"}

    def attach_words(self, job: Mapping[str, Any]) -> list[str] | None:
        return None

    async def survey(
        self, clusters: Mapping[str, Any], spec: Mapping[str, Any] | None
    ) -> list[dict[str, Any]]:
        return []

    async def commands_for(
        self, task: TaskKey, wait_s: float, done: Sequence[int]
    ) -> list[dict[str, Any]]:
        self.calls.append(("commands_for", task, wait_s, list(done)))
        if not self.commands.get(str(task)):
            await asyncio.sleep(wait_s)
        return self.commands.get(str(task), [])

    async def commands_for_guests(
        self, uuids: Sequence[str], wait_s: float, done: Sequence[int]
    ) -> list[dict[str, Any]]:
        self.calls.append(("commands_for_guests", list(uuids), wait_s, list(done)))
        return []

    async def _write(self, work: Any) -> Any:
        return await asyncio.wrap_future(self.store.write(work))


class Served:
    """The running server and what tests do to it."""

    def __init__(self, folder: Path, control: Any = FakeControl) -> None:
        self.paths = Paths(folder)
        self.socket = socket_path(folder)
        self.store = Store(self.paths)
        self.store.open()
        self.process = Process(
            self.paths, layers.load(folder), self.store, self._keep_control(control)
        )
        self.control: Any = None
        self.error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="served")

    def _keep_control(self, control: Any) -> Any:
        def make(*args: Any) -> Any:
            self.control = control(*args)
            return self.control

        return make

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                self._loop = runner.get_loop()
                runner.run(self.process.run())
        except BaseException as error:  # told by `start`
            self.error = error

    def start(self) -> "Served":
        self._thread.start()
        wait_until(lambda: self.error or self.paths.server_json.exists(), what="the server's start")
        if self.error:
            raise self.error
        about = json.loads(self.paths.server_json.read_text())
        self.port = int(about["url"].rpartition(":")[2])
        return self

    def stop(self) -> None:
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self.process.stopping.set)
        self._thread.join(60)
        self.store.close()
        assert not self._thread.is_alive(), "the server did not end"

    # -- what is in it

    def write(self, work: Any) -> Any:
        return self.store.write(work).result(10)

    def token(self, role: str, task: TaskKey | None = None) -> str:
        token_id, token, hashed = mint()
        self.write(lambda c: catalog.insert_token(c, token_id, hashed, role, task, time.time_ns()))
        return token

    def browser(self) -> str:
        """The cookie of a browser that has logged in as admin."""
        code = self.unix("POST", "/api/login-code", json={"role": "admin"}).json()["code"]
        answer = self.tcp("POST", "/login", body=json.dumps({"code": code}).encode())
        assert answer.status == 200, answer
        return answer.headers["set-cookie"].partition(";")[0].partition("=")[2]

    def job(
        self,
        number: int = 1,
        name: str = "job",
        state: State | None = None,
        command: Sequence[str] = ("true",),
    ) -> tuple[Job, TaskKey]:
        uuid = UUID.format(number)
        key = TaskKey(uuid, 1, "worker-0")

        def make(c: Any) -> Job:
            now = time.time_ns()
            job = catalog.insert_job(c, uuid, JobSpec(list(command), "/", name), now)
            catalog.insert_attempt(c, job.pk, 1, f"{uuid}-1", now)
            catalog.insert_task(c, job.pk, 1, "worker-0", "here")
            if state is not None:
                catalog.set_job_state(c, job.pk, State.RUNNING, now, started_ns=now)
                if state is not State.RUNNING:
                    catalog.set_job_state(c, job.pk, state, now, ended_ns=now, exit_code=0)
            return catalog.load_job(c, job.pk)

        return self.write(make), key

    def room(self) -> int:
        """Bytes of requests that the server holds now."""
        assert self.process.app is not None
        return self.process.app.services.room.used_bytes

    def watching(self) -> int:
        """Long polls that wait for news of a job."""
        assert self.process.app is not None
        return self.process.app.services.live.waiting

    def connections(self, unix: bool = True) -> int:
        return self.process.slots.used[unix]

    # -- asking it

    def unix(self, method: str, path: str, *, token: str | None = None, **more: Any) -> Response:
        with Client(self.socket, token, 20) as client:
            return client.request(method, path, **more)

    def tcp(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Response:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body=body, headers=dict(headers or {}))
            answer = connection.getresponse()
            return Response(
                answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
            )
        finally:
            connection.close()

    def raw(self, data: bytes, *, unix: bool = False, timeout_s: float = 20.0) -> bytes:
        """Send these bytes and read until the server closes, or says nothing for a while after an
        answer.
        """
        with self.connect(unix, timeout_s) as sock:
            try:
                sock.sendall(data)
            except OSError:
                pass  # refused while we were still sending; the answer may be there all the same
            return read_all(sock)

    def connect(self, unix: bool = False, timeout_s: float = 20.0) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        sock.settimeout(timeout_s)
        sock.connect(str(self.socket) if unix else ("127.0.0.1", self.port))
        return sock


def read_all(sock: socket.socket) -> bytes:
    found = b""
    while True:
        try:
            data = sock.recv(65536)
        except (TimeoutError, ConnectionResetError):
            return found
        if not data:
            return found
        found += data
        head, split, body = found.partition(b"\r\n\r\n")
        lengths = [
            int(h.split(b":")[1])
            for h in head.split(b"\r\n")
            if h.lower().startswith(b"content-length")
        ]
        if split and lengths and len(body) >= lengths[0]:
            return found


def status(answer: bytes) -> int:
    """The status of a raw answer; 0 when the connection was closed without one."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/") else 0
