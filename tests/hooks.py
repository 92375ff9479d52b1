"""A web address of our own for tests: keeps what is posted to it, and answers as it is told."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Hook:
    """`with Hook() as hook:` serves on loopback; `hook.got` holds (path, headers, parsed body) of
    each POST.
    """

    def __init__(self, *statuses: int, headers: dict[str, str] | None = None) -> None:
        self.got: list[tuple[str, dict[str, str], Any]] = []
        self.statuses, self.headers = list(statuses), headers or {}
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.got.append((self.path, dict(self.headers), json.loads(body)))
                self.send_response(hook.statuses.pop(0) if hook.statuses else 200)
                for name, value in hook.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook/s3cret-in-the-path"

    def __enter__(self) -> "Hook":
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.05], daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
