"""A server that answers as docs/concepts/protocol.md says, from a script: for tests of the views
alone.

Listens on the socket of a home, so that `hw` finds it as it finds the real one. `api.on("GET",
"/api/jobs", answer)`; an answer is data, bytes, or a function of the Request; a Reply sets the
status, and CUT drops the connection.
"""

import json
import re
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from headway.home.paths import socket_path

CUT = object()


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, list[str]]
    body: Any


@dataclass
class Reply:
    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


def error(
    status: int, code: str, message: str, hint: str = "", candidates: tuple[str, ...] = ()
) -> Reply:
    found = {"code": code, "message": message, "hint": hint, "candidates": list(candidates)}
    return Reply({"error": found}, status)


class FakeApi:
    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: list[tuple[str, re.Pattern[str], Any]] = []

    def on(self, method: str, path: str, answer: Any) -> None:
        """Later ones win. `path` is a regular expression."""
        self.answers.insert(0, (method, re.compile(path), answer))

    def sent(self, method: str, path: str) -> list[Request]:
        return [r for r in self.requests if r.method == method and re.fullmatch(path, r.path)]

    def answer(self, request: Request) -> Any:
        self.requests.append(request)
        for method, path, answer in self.answers:
            if method == request.method and path.fullmatch(request.path):
                return answer(request) if isinstance(answer, Callable) else answer  # type: ignore[arg-type]
        if request.path == "/api/find":  # every word is an id, unless a test says otherwise
            ref = request.query["ref"][0]
            return {"id": ref, "uuid": ref, "kind": "job", "state": "running", "said": ""}
        return error(404, "not_found", f"no job matches {request.path}", "hw ls lists the jobs")


@contextmanager
def serving(home: Path) -> Iterator[FakeApi]:
    api = FakeApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            split = urlsplit(self.path)
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = Request(
                self.command, split.path, parse_qs(split.query), json.loads(raw) if raw else None
            )
            answer = api.answer(request)
            if answer is CUT:
                self.close_connection = True
                return
            reply = answer if isinstance(answer, Reply) else Reply(answer)
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in {"Content-Length": str(len(body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = _do

        def address_string(self) -> str:
            return "unix"

        def log_message(self, *_: Any) -> None:
            pass

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *_: Any) -> None:
            pass  # a client that hung up

    server = Server(str(socket_path(home)), Handler)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def process(rank: int = 0, **changes: Any) -> dict[str, Any]:
    return {
        "rank": rank, "local_rank": rank, "pid": 100 + rank, "state": "exited", "exit_code": 0, "signal": None,
        "reason": None, "exception": None, "started_at": "2026-11-15T12:00:01.000000Z",
        "ended_at": "2026-11-15T12:00:13.000000Z",
        "logs": {name: f"/h/logs/u/1/worker-0/{name}-{rank}" for name in ("stdout", "stderr")},
    } | changes  # fmt: skip


def job(job_id: str = "digits-7f3c2", *processes: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A job object of the contract."""
    cause = changes.pop("cause", None)
    found = {
        "id": job_id, "uuid": "11111111-1111-4111-8111-111111111111", "name": job_id.rsplit("-", 1)[0],
        "experiment": None, "state": "succeeded", "state_since": "2026-11-15T12:00:13.000000Z", "cluster": "here",
        "engine": "local", "engine_id": "e1", "engine_url": None, "attach": None, "command": ["python", "train.py"],
        "cwd": "/tmp/p", "gpus": 0, "submitted_at": "2026-11-15T12:00:00.000000Z",
        "started_at": "2026-11-15T12:00:01.000000Z", "ended_at": "2026-11-15T12:00:13.000000Z", "elapsed_s": 12.0,
        "exit_code": 0, "signal": None, "parent": None, "tags": [],
        "config": None, "progress": [], "usage": None, "metrics": {}, "page": None,
    }  # fmt: skip
    found |= changes
    tasks = [
        {
            "name": "worker-0",
            "node": "host",
            "state": "ended",
            "processes": list(processes) or [process()],
        }
    ]
    attempt = {
        "number": 1,
        "state": found["state"],
        "cause": cause,
        "exit_code": 0,
        "signal": None,
        "tasks": tasks,
    }
    return found | {"attempts": [attempt]}
