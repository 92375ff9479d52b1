"""The HTTP client of every view: requests to this home's server or to a monitor, answers as data,
refusals as errors.

Routes are those of `docs/concepts/protocol.md`. A Source is for one thread; `again()` gives another
its own.
"""

import json
import re
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote, urlencode

from headway.home import paths as homes
from headway.model.errors import (
    DamagedError,
    HeadwayError,
    NotFoundError,
    RefusedError,
    UnreachableError,
    UsageError,
    VersionError,
)
from headway.model.limits import BACKOFF_FIRST_S, VIEW_RETRY_MAX_S, VIEW_SLOW_S, VIEW_TIMEOUT_S
from headway.views.api.http_client import Client, LostError, Response

# a header: the server's store takes nothing at the moment, and why
_TROUBLE: Final = "x-headway-trouble"
_NOTICE: Final = "x-headway-notice"
_LOG_TAIL_BYTES: Final = 16 * 1024
_TRIES: Final = 10  # of a request to servers that are ended over it, one after the other
Query = Iterable[tuple[str, object]]
_REF: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
_ERRORS: Final[dict[str, type[HeadwayError]]] = {
    error.code: error
    for error in (UsageError, RefusedError, UnreachableError, DamagedError, VersionError)
}


class Source:
    def __init__(
        self, home: Path, client: Client, monitor: str = "", *, start: bool = True
    ) -> None:
        self.home, self.client = home, client
        self._starts = start and not monitor
        # the last request may have been heard before, by a server that was ended over it
        self.repeated = False
        self._say: Callable[[str], None] | None = None
        self._noticed = False
        self.monitor = monitor  # the address of another machine's server; it is not ours to start

    @classmethod
    def connect(cls, *, start: bool = True) -> Self:
        """The server of HEADWAY_HOME. With `start`, one is started when none is there."""
        home = homes.home(make=start)
        client = Client(homes.socket_path(home))
        if not client.try_connect():
            client.path = _start_server(home) if start else _find_server(home)
        client.stuck = partial(_stuck_hint, home)
        return cls(home, client, start=start)

    def _tell_trouble(self, trouble: str) -> None:
        """Once: a server that can store nothing knows no more than it knew."""
        if not trouble or self._say is None:
            return
        say, self._say = self._say, None
        say(f"hw: the server can store nothing at the moment: {trouble[:200]}")
        say(
            f"    what it shows may be old; jobs go on, and what they write waits. Is there room for {self.home}?"
        )

    def _tell_notice(self, notice: str) -> None:
        """Once per command, until it is acknowledged: data may be missing from what is shown."""
        if not notice or self._say is None or self._noticed:
            return
        self._noticed = True
        self._say(f"hw: {notice[:600]}")
        self._say("    hw doctor says more; when you have seen it: hw doctor --acknowledge")

    def warn_by(self, say: Callable[[str], None]) -> None:
        """A person who waits for an answer shall know for what. Also of a server that cannot store
        anything.
        """
        self._say = say

        def tell() -> None:
            say(
                f"hw: the server{_pid_words(self.home)} has not answered for {VIEW_SLOW_S:g} s; still waiting for it"
            )

        self.client.slow = None if self.monitor else tell

    @classmethod
    def to_monitor(cls, address: str) -> Self:
        from headway.views.api.monitor_client import client_to

        home = homes.home()
        return cls(home, client_to(home, address), address)

    def again(self) -> "Source":
        """A connection of its own, for another thread; the server is started if it has gone."""
        if self.monitor:
            return Source.to_monitor(self.monitor)
        found = Source(self.home, Client(self.client.path))
        found.reconnect()
        return found

    def reconnect(self) -> None:
        """Look for the server anew; it is started if it has gone."""
        self.client.close()
        if not self.monitor and not self.client.try_connect():
            self.client.path = _start_server(self.home)

    def get(self, route: str, query: Query = ()) -> Any:
        return self._data("GET", route + encode(query), again=True)

    def post(self, route: str, body: object, *, wait_s: float = 0.0, again: bool = False) -> Any:
        """`again`: asking twice is asking once, so it is repeated where a server was ended over it."""
        if wait_s:  # it is asked to wait
            self.client.slow = None
        return self._data("POST", route, body=body, timeout_s=VIEW_TIMEOUT_S + wait_s, again=again)

    def ask(self, ref: str, verb: str) -> Any:
        """`abort` or `release` a job; the job. One that had heard of it before is over now, and
        refuses.
        """
        try:
            return self.post(job_route(ref, verb), {}, again=True)
        except RefusedError:
            if not self.repeated:
                raise
            return self.get(job_route(ref))

    def patch(self, route: str, body: object) -> Any:
        return self._data("PATCH", route, body=body, again=True)

    def delete(self, route: str) -> Any:
        try:
            return self._data("DELETE", route, again=True)
        except NotFoundError:
            if not self.repeated:
                raise
            return None

    def raw(self, route: str, query: Query = ()) -> Response:
        """An answer that is not JSON, or JSON that is only passed on."""
        return self._answer("GET", route + encode(query), again=True)

    def send(self, route: str, data: bytes, query: Query = ()) -> Any:
        """Bytes as they are; the JSON of the answer. Sending twice is sending once."""
        target = route + encode(query)
        answer = self._until_answered(
            partial(self.client.request, "POST", target, data, VIEW_TIMEOUT_S), again=True
        )
        if answer.status >= 300:
            raise error_of(answer, f"POST {target[:120]}")
        return parse(answer.body, f"POST {target[:120]}")

    def post_raw(self, route: str, body: object, *, wait_s: float = 0.0) -> bytes:
        """A question with a body, whose answer is not JSON; it may take `wait_s` longer than others."""
        limit_s = VIEW_TIMEOUT_S + wait_s
        return self._answer("POST", route, body=body, timeout_s=limit_s, again=True).body

    def close(self) -> None:
        self.client.close()

    def _data(
        self,
        method: str,
        route: str,
        *,
        body: object = None,
        timeout_s: float | None = None,
        again: bool,
    ) -> Any:
        answer = self._answer(method, route, body=body, timeout_s=timeout_s, again=again)
        return parse(answer.body, f"{method} {route[:120]}") if answer.body else None

    def _answer(
        self,
        method: str,
        route: str,
        *,
        body: object = None,
        timeout_s: float | None = None,
        again: bool,
    ) -> Response:
        data = None if body is None else json.dumps(body).encode()
        limit_s = VIEW_TIMEOUT_S if timeout_s is None else timeout_s
        answer = self._until_answered(
            partial(self.client.request, method, route, data, limit_s), again
        )
        self._tell_notice(answer.headers.get(_NOTICE, ""))
        self._tell_trouble(answer.headers.get(_TROUBLE, ""))
        if answer.status >= 300:
            raise error_of(answer, f"{method} {route[:120]}")
        return answer

    def _until_answered(self, request: Callable[[], Response], again: bool) -> Response:
        """A request that nobody has heard is made again in any case, to the next server, which is
        started.
        """
        self.repeated = False
        for left in reversed(range(_TRIES if self._starts else 1)):
            try:
                return request()
            except LostError as error:
                if not left or (error.sent and not again):
                    raise
                self.repeated = self.repeated or error.sent
            self.reconnect()
        raise AssertionError("unreachable")


def _pid_words(home: Path) -> str:
    """` (pid 4711)`, from the file that a server writes when it starts; nothing where that cannot
    be read.
    """
    try:
        return f" (pid {int(json.loads(homes.Paths(home).server_json.read_bytes())['pid'])})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _stuck_hint(home: Path) -> str:
    pid = _pid_words(home).strip(" ()").removeprefix("pid ")
    end = f"; to end one that hangs: kill -9 {pid}, and jobs go on" if pid else ""
    return f"hw server logs may say why{end}"


def parse(body: bytes, tried: str) -> Any:
    """The JSON of an answer."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise DamagedError(f"the server answered {tried} with something that is not JSON") from None


def _find_server(home: Path) -> Path:
    from headway.home.connect import is_listening, server_path

    path = server_path(home)
    if not is_listening(path):
        raise UnreachableError(f"no server is running for {home}", "to start one: hw server start")
    return path


def _start_server(home: Path) -> Path:
    # here: it costs 60 ms, and there mostly is a server
    from headway.home.connect import ensure_server

    try:
        return ensure_server(home)
    except UnreachableError as error:
        found = last_words(homes.Paths(home).server_log)
        raise UnreachableError(
            f"{error.message}\nits last words: {found}" if found else error.message, error.hint
        ) from None


def last_words(log: Path) -> str:
    """The last error in a server's log, without its time and name."""
    try:
        with log.open("rb") as file:
            file.seek(max(log.stat().st_size - _LOG_TAIL_BYTES, 0))
            lines = file.read(_LOG_TAIL_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    errors = [line for line in lines if " ERROR " in line] or [
        line for line in lines if line.strip()
    ]
    return errors[-1].partition(" ERROR ")[2].partition(" ")[2] or errors[-1] if errors else ""


def encode(query: Query) -> str:
    """`?a=1&b=2`; None is left out, a list repeats its name."""
    pairs = [
        (k, v)
        for k, vs in query
        for v in (vs if isinstance(vs, list | tuple) else [vs])
        if v is not None
    ]
    return "?" + urlencode(pairs) if pairs else ""


def array_route(ref: str, *rest: str) -> str:
    """`/api/arrays/REF/…`."""
    return job_route(ref, *rest).replace("/api/jobs/", "/api/arrays/", 1)


def job_route(ref: str, *rest: str) -> str:
    """`/api/jobs/REF/…`. What cannot be an id never reaches the server as a path (B20)."""
    if not _REF.match(ref) or ".." in ref:
        raise NotFoundError(
            f'no job has the id "{ref[:80]}"',
            "hw ls shows the jobs; a unique ending of an id will do",
        )
    return "/".join(("/api/jobs", quote(ref, safe=""), *rest))


def error_of(answer: Response, tried: str) -> HeadwayError:
    """The server's refusal as the error that it raised there."""
    try:
        found = json.loads(answer.body)["error"]
        code, message, hint = (
            str(found["code"]),
            str(found["message"]),
            str(found.get("hint") or ""),
        )
        candidates = [str(c) for c in found.get("candidates") or []]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        code, message, hint, candidates = (
            "",
            f"the server answered {tried} with status {answer.status}",
            "",
            [],
        )
    if code == NotFoundError.code:
        return NotFoundError(message, hint, candidates)
    kind = _ERRORS.get(code, UnreachableError if answer.status in (502, 503, 504) else HeadwayError)
    return kind(
        message, hint or ("its log may say why: hw server logs" if answer.status >= 500 else "")
    )


def until_reached(attempt: Callable[[], Any], lost: Callable[[UnreachableError], None]) -> Any:
    """Repeat `attempt` until the server answers; `lost` is told of each failure. For views that
    outlive a server.
    """
    pause_s = BACKOFF_FIRST_S
    while True:
        try:
            return attempt()
        except UnreachableError as error:
            lost(error)
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, VIEW_RETRY_MAX_S)
