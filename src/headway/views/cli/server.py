"""`hw server start|stop|status|logs`: the server of this home. It starts by itself; this is to look
and to stop.
"""

import json
import os
import time
from pathlib import Path
from typing import Any, Final

from headway.home import paths as homes
from headway.model.errors import HeadwayError, UnreachableError, UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import LOOP_LAG_TOLD_S
from headway.views.api.source import Source
from headway.views.cli.dispatch import Call
from headway.views.text.job_text import WAYS
from headway.wire import display, identity

_STOP_TIMEOUT_S: Final = 30.0
_TAIL_LINES: Final = 50
_TAIL_BYTES_MAX: Final = 1024 * 1024
_POLL_S: Final = 0.2
_STATUS_KEYS: Final = ("pid", "address", "version", "home")


def command(call: Call) -> int:
    verbs = {"start": _start, "stop": _stop, "status": _status, "logs": _logs}
    verb = call.words[0] if len(call.words) == 1 and not call.after else ""
    if verb not in verbs:
        from headway.settings.nearest import did_you_mean

        found = " ".join(call.words)[:60]
        raise UsageError(
            f'hw server has no "{found}"{did_you_mean(found, verbs)}'
            if found
            else "hw server needs one more word",
            f"usage: {call.command.usage}",
        )
    return verbs[verb](call)


def _start(call: Call) -> int:
    source = call.source()
    _tell(call, source.get("/api/server"))
    return 0


def _status(call: Call) -> int:
    """Of a server that is not there, the home is still told; the exit code says that it could not
    be reached.
    """
    try:
        found = call.source(start=False).get("/api/server")
    except UnreachableError:
        if call.as_json:
            call.terminal.put_json(
                {"pid": None, "address": None, "version": None, "home": str(homes.home(make=False))}
            )
        raise
    _tell(call, found)
    return 0


def _tell(call: Call, found: JsonObject) -> None:
    if call.as_json:
        call.terminal.put_json({**{key: found.get(key) for key in _STATUS_KEYS}, **found})
        return
    out = call.terminal.out
    facts = [("server", f"running, pid {found.get('pid')}, version {found.get('version')}")]
    facts += [(key, str(found[key])) for key in ("address", "url", "home") if found.get(key)]
    jobs = found.get("jobs")
    if isinstance(jobs, dict):
        facts.append(
            ("jobs", ", ".join(f"{count} {state}" for state, count in jobs.items()) or "none yet")
        )
    if words := agent_words(found):
        facts.append(("agents", words))
    if found.get("restored"):
        facts.append(("restored", str(found["restored"])))
    if step := clock_words(found):
        facts.append(("clock", step))
    if lag := lag_words(found):
        facts.append(("late", lag))
    for label, text in facts:
        call.terminal.put(f"{label:<10}{out.safe(text)}")


def clock_words(found: JsonObject) -> str:
    """That the clock of the server's machine was set while it ran."""
    steps = found.get("clock_steps") or []
    if not steps:
        return ""
    last = steps[-1]
    return f"was set by {last['step_s']:+.1f} s at {last['at']}; how long jobs took is by their own clocks"


def lag_words(found: JsonObject) -> str:
    """Whether something has held the server's event loop so long that a person would notice."""
    lag = found.get("loop_lag") or {}
    if lag.get("worst_s", 0.0) < LOOP_LAG_TOLD_S:
        return ""
    recent = f"; in the last minute {lag['recent_s']:.1f} s" if lag["recent_s"] > 0.1 else ""
    return f"every answer was late by {lag['worst_s']:.1f} s at {lag['worst_at']}{recent}"


def agent_words(found: JsonObject) -> str:
    """Where agents on other machines come in, and how many came which way."""
    agents, ways = found.get("agents") or {}, found.get("ways") or {}
    parts = [f"over TLS at {', '.join(agents['addresses'])}"] if agents.get("addresses") else []
    parts += [f"not over the network: {agents['error']}"] if agents.get("error") else []
    count = ", ".join(f"{number} {WAYS.get(way, way)}" for way, number in ways.items())
    return "; ".join(
        [*parts, f"tasks: {count}"] if count and (parts or set(ways) - {"socket"}) else parts
    )


def _stop(call: Call) -> int:
    try:
        source = call.source(start=False)
    except UnreachableError:
        return _told_stopped(call, "no server was running")
    who = process_of(source)
    source.post("/api/server/stop", {})
    source.close()
    wait_gone(source, who)
    return _told_stopped(
        call, "the server has stopped; jobs go on, and the next command starts it again"
    )


def _told_stopped(call: Call, words: str) -> int:
    if call.as_json:
        call.terminal.put_json({"stopped": True})
    else:
        call.terminal.say(words)
    return 0


def process_of(source: Source) -> tuple[int, int] | None:
    """Pid and start of the server of this home; None where it does not say."""
    try:
        pid = int(json.loads(homes.Paths(source.home).server_json.read_bytes())["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    start = identity.start_of(pid)
    return None if start is None else (pid, start)


def wait_gone(source: Source, who: tuple[int, int] | None = None) -> None:
    """Until nobody answers, and its process has closed the database and is gone: whoever copies or
    moves the home next has all of it.
    """

    def is_there() -> bool:
        return source.client.try_connect() or (
            who is not None and identity.start_of(who[0]) == who[1]
        )

    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while is_there():
        source.close()
        if time.monotonic() > deadline:
            raise HeadwayError(
                f"the server has not stopped within {_STOP_TIMEOUT_S:g} s",
                "hw server logs may say why",
            )
        time.sleep(_POLL_S / 4)


def _logs(call: Call) -> int:
    """Read from its file, not from the server: the log is wanted most when there is no server."""
    path = homes.Paths(homes.home(make=False)).server_log
    lines = call.get("tail", _TAIL_LINES)
    try:
        with path.open("rb") as file:
            position = _put_tail(call, file, lines)
            while call.get("follow"):
                position = _put_more(call, path, position)
                time.sleep(_POLL_S)
    except FileNotFoundError:
        raise HeadwayError(
            f"there is no server log yet: {path}", "it is made when a server starts"
        ) from None
    return 0


def _put_tail(call: Call, file: Any, lines: int) -> int:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _TAIL_BYTES_MAX, 0))
    data = file.read(_TAIL_BYTES_MAX)
    kept = b"".join(data.splitlines(keepends=True)[-lines:]) if lines else b""
    _put(call, kept)
    return int(size)


def _put_more(call: Call, path: Path, position: int) -> int:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) < position:
            position = 0  # it was rotated
        file.seek(position)
        data = file.read(_TAIL_BYTES_MAX)
        _put(call, data)
        return position + len(data)


def _put(call: Call, data: bytes) -> None:
    """As it is for a program, safe for a terminal; with --json, one object per line."""
    out = call.terminal.out
    if call.as_json:
        for line in display.decode(data).splitlines():
            out.write_bytes(json.dumps({"text": line}).encode() + b"\n")
    elif data and out.is_tty:
        out.write(out.safe_block(display.decode(data)))
    else:
        out.write_bytes(data)
