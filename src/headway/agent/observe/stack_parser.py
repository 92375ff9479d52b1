"""Reads stacks: what faulthandler writes, and what `py-spy dump --json` prints. Pure. Called by
`stacks.py`.

A thread is `{name, main, frames: [(file, line, function)]}`, newest frame first.
"""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.model.json_types import JsonObject

    Frame = tuple[str, int, str]
    Thread = JsonObject

THREADS_MAX = 64  # of one process; those that are told first, and always the main one
FRAMES_MAX = 100  # faulthandler itself writes no more
_THREAD = re.compile(
    r"(?:Current thread|Thread) 0x[0-9a-f]+(?: \[(?P<name>[^\]]*)\])? \(most recent call first\):"
)
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)')


def parse_dump(text: str) -> "list[Thread]":
    """The threads of one dump. faulthandler lists the newest thread first, so the last is main."""
    threads: list[Thread] = []
    for line in text.replace("\0", "").splitlines():
        begin = _THREAD.match(line)
        if begin is not None:
            threads.append({"name": begin["name"], "main": False, "frames": []})
            continue
        frame = _FRAME.match(line)
        if frame is not None and threads and len(threads[-1]["frames"]) < FRAMES_MAX:
            number = int(frame["line"]) if frame["line"].isdigit() else 0
            threads[-1]["frames"].append((frame["file"], number, frame["function"]))
    if threads:
        threads[-1]["main"] = True
    return threads[-1:] + threads[:-1][: THREADS_MAX - 1]


def is_whole(text: str) -> bool:
    """Whether a dump has surely come to its end: the last thread begins at a module or as main
    threads do. Otherwise one waits until it grows no more.
    """
    return text.endswith("\n") and text.rstrip().endswith(" in <module>")


def parse_py_spy(text: str, pid: int) -> "list[Thread]":
    """Raises ValueError for what is no such list."""
    try:
        rows = json.loads(text)
        threads = [_py_spy_thread(row, pid) for row in rows]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"py-spy printed something else: {error}") from None
    threads.sort(key=lambda thread: not thread["main"])
    return threads[:THREADS_MAX]


def _py_spy_thread(row: "JsonObject", pid: int) -> "Thread":
    frames = [
        (str(one["filename"]), int(one.get("line") or 0), str(one["name"]))
        for one in row["frames"][:FRAMES_MAX]
    ]
    name = row.get("thread_name")
    return {
        "name": str(name) if name else None,
        "main": row.get("os_thread_id") == pid or name == "MainThread",
        "frames": frames,
    }
