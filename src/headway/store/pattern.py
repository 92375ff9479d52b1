"""Regular expressions that people write, run where they can be ended. The only place in the server
that runs one.

`re` backtracks and holds the GIL while it does, so that one pattern such as `(a|aa)*!` would stop
the whole server. A pattern therefore runs in a child process with limits on time and memory, which
sees nothing but the texts (`Matcher` for filters over rows; `start_child` for `grep.py`, which has
a child program of its own). A pattern without groups and repeats cannot backtrack far, and runs here.
"""

import json
import re
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import TypeVar

from headway.model.errors import UsageError
from headway.model.limits import (
    GREP_PATTERN_CHARS_MAX,
    MATCH_BATCH,
    MATCH_TEXT_CHARS_MAX,
    MATCH_TIMEOUT_S,
)

# No group, no repeat: each start in the text costs at most the length of the pattern.
_LINEAR = re.compile(r"(?:[^\\()*+?{}]|\\.)*", re.S)
_SIZE = struct.Struct("<I")
# Limits come first, so that a child whose server was killed ends by itself.
LIMITS = r"""
import re, resource, struct, sys
seconds = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
read, write = sys.stdin.buffer.read, sys.stdout.buffer.write
pattern = re.compile(read(struct.unpack("<I", read(4))[0]).decode("utf-8", "surrogatepass"))
"""
_MATCH_CHILD = (
    LIMITS
    + r"""
import json
while len(size := read(4)) == 4:
    texts = json.loads(read(struct.unpack("<I", size)[0]))
    write(bytes(1 if pattern.search(text) else 0 for text in texts))
    sys.stdout.buffer.flush()
"""
)

Row = TypeVar("Row")


def check_pattern(pattern: str) -> None:
    """Refuse what is no regular expression. Compiling takes half a second at worst, in Python code
    that lets other threads go on.
    """
    if len(pattern) > GREP_PATTERN_CHARS_MAX:
        raise UsageError(f"the pattern has more than {GREP_PATTERN_CHARS_MAX} characters")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"{pattern[:80]!r} is not a regular expression: {error}") from None


def start_child(
    program: str, pattern: str, timeout_s: float, *arguments: str
) -> "subprocess.Popen[bytes]":
    """A child that runs `program`, which begins with `LIMITS`. The caller ends it (`stop_child`)."""
    seconds = max(1, int(timeout_s))
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", program, str(seconds), *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, close_fds=True,
        cwd="/",
    )  # fmt: skip


def tell_pattern(child: "subprocess.Popen[bytes]", pattern: str) -> None:
    assert child.stdin is not None
    text = pattern.encode("utf-8", "surrogatepass")
    child.stdin.write(_SIZE.pack(len(text)) + text)


def stop_child(child: "subprocess.Popen[bytes]") -> int:
    """Its exit code, after it has been killed where it still runs."""
    child.kill()
    code = child.wait()
    for pipe in (child.stdin, child.stdout):
        try:
            if pipe is not None:
                pipe.close()
        except BrokenPipeError:
            continue  # what was still in the buffer is of no use any more
    return code


class Matcher:
    """Whether texts match a pattern, wherever in the text. Use as a context manager.

    `timeout_s` (default: MATCH_TIMEOUT_S) is for all texts together; a pattern that takes longer is
    refused with a message for the person. Texts are cut to MATCH_TEXT_CHARS_MAX characters.
    """

    def __init__(self, pattern: str, timeout_s: float | None = None) -> None:
        check_pattern(pattern)
        self._pattern = pattern
        self._timeout_s = MATCH_TIMEOUT_S if timeout_s is None else timeout_s
        self._search: Callable[[str], object] | None = None
        if _LINEAR.fullmatch(pattern):
            self._search = re.compile(pattern).search
        self._child: subprocess.Popen[bytes] | None = None
        self._watch: threading.Timer | None = None
        self._late = threading.Event()

    def __enter__(self) -> "Matcher":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __call__(self, text: str) -> bool:
        return self.many([text])[0]

    def many(self, texts: Sequence[str]) -> list[bool]:
        cut = [text[:MATCH_TEXT_CHARS_MAX] for text in texts]
        if self._search is not None:
            return [self._search(text) is not None for text in cut]
        found: list[bool] = []
        for start in range(0, len(cut), MATCH_BATCH):
            found += self._ask(cut[start : start + MATCH_BATCH])
        return found

    def select(
        self, rows: Iterable[Row], texts_of: Callable[[Row], Sequence[str]]
    ) -> Iterator[Row]:
        """The rows of which one text matches, in order, read in batches that grow: a list that is
        cut after its first rows asks for few.
        """
        source, size = iter(rows), 64
        while batch := list(islice(source, size)):
            texts = [texts_of(row) for row in batch]
            hits = iter(self.many([text for some in texts for text in some]))
            for row, some in zip(batch, texts, strict=True):
                if any(list(islice(hits, len(some)))):
                    yield row
            size = min(size * 4, MATCH_BATCH)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self._child is not None:
            stop_child(self._child)
            self._child = None

    def _ask(self, texts: list[str]) -> list[bool]:
        child = self._child or self._start()
        assert child.stdin is not None and child.stdout is not None
        data = json.dumps(texts).encode()  # ASCII, whatever is in the texts
        try:
            child.stdin.write(_SIZE.pack(len(data)) + data)
            child.stdin.flush()
            answer = child.stdout.read(len(texts))
        except BrokenPipeError:
            answer = b""
        if len(answer) < len(texts):
            self._refuse(stop_child(child))
        return [byte == 1 for byte in answer]

    def _start(self) -> "subprocess.Popen[bytes]":
        self._child = child = start_child(_MATCH_CHILD, self._pattern, self._timeout_s)
        self._watch = threading.Timer(self._timeout_s, self._stop_late)
        self._watch.daemon = True
        self._watch.start()
        tell_pattern(child, self._pattern)
        return child

    def _stop_late(self) -> None:
        self._late.set()
        if self._child is not None:
            self._child.kill()

    def _refuse(self, code: int) -> None:
        shown = repr(self._pattern[:80])
        if self._late.is_set() or code == -signal.SIGXCPU:
            raise UsageError(
                f"the pattern {shown} took longer than {self._timeout_s:g} s and was ended",
                "use a simpler one: without a repeat inside a repeat, as (a+)+ has, "
                "or alternatives that begin alike",
            )
        raise UsageError(f"the pattern {shown} needs too much memory", "use a simpler one")
