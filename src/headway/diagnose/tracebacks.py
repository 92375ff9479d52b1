"""Exceptions in printed output: whole tracebacks, chains of them, inner ones of workers, and last lines of cut ones."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.diagnose.evidence import Line
from headway.diagnose.rule import Traceback

HEADER = "Traceback (most recent call last)"
FRAMES_MAX = 60
OPEN_LINES_MAX = 400  # a traceback that has not ended by then was cut
STRAY_LINES_MAX = 60  # output of others between its lines

_FRAME = re.compile(r'\s*(?:\| )*File "([^"]+)", line (\d+)(?:, in (.*))?')
# The last line of a traceback, whatever the exception is called …
_ANY_END = re.compile(r"([A-Za-z_][\w.]*(?:\([\w.]+\))?)(?:: ?(.*))?$")
# … and one that is recognised without the lines before it.
_SURE_END = re.compile(
    r"((?:[A-Za-z_]\w*\.)*_?[A-Z]\w*(?:Error|Exception|Interrupt|Failure|NotFound|Timeout"
    r"|BadZipFile|Conflict)"
    r"|(?:\w+\.)*(?:errors?|error\w+|exc|exceptions?)\.(?:\w+\.)*[A-Z]\w*"
    r"|KeyboardInterrupt|SystemExit|StopIteration|queue\.Empty|subprocess\.TimeoutExpired"
    r"|torch\.(?:cuda\.)?OutOfMemoryError)(?:: (.*)|:?)$"
)
# … and as hydra prints what it wraps: TypeError("…").
_REPR_END = re.compile(r"([A-Z]\w*(?:Error|Exception))\((['\"])(.*)\2,?\)$")
_NATIVE_FRAME = re.compile(r"\s*(?:frame )?#\d+:? ")
_SOURCE = re.compile(r"\s*(?:raise \w|return \w|\^+$|~+\^*~*$)")
_NOT_KINDS = {
    "Message",
    "Arguments",
    "Call",
    "Thread",
    "Original",
    "Error",
    "Usage",
    "srun",
    "wandb",
    "During",
}
# As error files of torch elastic have it.
_JSON_END = re.compile(r'\s*"message": "([A-Z]\w*(?:Error|Exception)): ((?:[^"\\]|\\[^n])*)')
_IGNORED = re.compile(
    r"Exception ignored in|^--- Logging error ---|Error in atexit\._run_exitfuncs"
    r"|Exception ignored on"
    r"|Error in sys\.excepthook|never (?:retrieved|awaited)|destroyed but it is pending"
)
_CHAINED = re.compile(
    r"During handling of the above exception|The above exception was the direct cause"
)
_LOGGED = re.compile(r"\b(?:ERROR|WARNING|WARN|CRITICAL|INFO|DEBUG)\b|^Exception in thread ")


@dataclass(slots=True)
class _Open:
    line: Line
    handled: bool
    logged: bool
    frames: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    strays: int = 0
    ended: bool = False


def find_tracebacks(lines: Sequence[Line]) -> tuple[list[Traceback], set[int]]:
    """All exceptions of one stream in order, and the numbers of the lines that only quote source or frames.

    An earlier member of a chain is marked `inner`.
    """
    found: list[Traceback] = []
    quoted: set[int] = set()
    after_frame: set[str] = set()
    opened: dict[str, _Open] = {}
    latest: dict[str, Traceback] = {}
    before: dict[str, str] = {}
    chained: set[str] = set()
    for line in lines:
        writer = line.writer
        text = _bare(line.text)
        current = opened.get(writer)
        if current and line.number - current.line.number > OPEN_LINES_MAX:
            current = None
            opened.pop(writer, None)
        if HEADER in text:
            previous = before.get(writer, "")
            handled = bool(_IGNORED.search(previous)) or (
                writer in chained and writer in latest and latest[writer].handled
            )
            opened[writer] = _Open(line, handled, bool(_LOGGED.search(previous[:80])))
            before[writer] = text
            continue
        if _CHAINED.search(text):
            if writer in latest:
                latest[writer].inner = True
                chained.add(writer)
            continue
        frame = _FRAME.match(text)
        if (
            frame
            or _NATIVE_FRAME.match(text)
            or _SOURCE.match(text)
            or (writer in after_frame and text[:1].isspace())
        ):
            quoted.add(line.number)
            if (
                not frame
                and writer in after_frame
                and current
                and len(current.sources) < FRAMES_MAX
            ):
                current.sources.append(text.strip())
        after_frame.discard(writer)
        if frame:
            after_frame.add(writer)
            if current and not current.ended:
                if len(current.frames) < FRAMES_MAX:
                    current.frames.append(f"{frame[1]}:{frame[2]} in {frame[3] or '?'}")
            else:
                opened[writer] = current = _Open(line, False, False)
                current.frames.append(f"{frame[1]}:{frame[2]} in {frame[3] or '?'}")
            continue
        exception = _end(text, current)
        if exception:
            kind, message = exception
            one = Traceback(kind, message, line)
            if current:
                one.frames = current.frames
                one.sources = current.sources
                one.whole = HEADER in current.line.text or bool(current.frames)
                one.handled = current.handled
                one.logged = current.logged
                current.ended = True
            elif _IGNORED.search(before.get(writer, "")):
                one.handled = True
            found.append(one)
            latest[writer] = one
            chained.discard(writer)
        elif current and text and not text[0].isspace() and not current.ended:
            current.strays += 1
            if current.strays > STRAY_LINES_MAX:
                opened.pop(writer, None)
        if text.strip():
            before[writer] = text
    return found, quoted


def _bare(text: str) -> str:
    """Without the frame that exception groups draw."""
    if text.startswith(("  | ", "    | ", "  + ")):
        return re.sub(r"^\s*[|+] ?(?:Exception Group )?", "", text)
    return text


def _end(text: str, current: _Open | None) -> tuple[str, str] | None:
    if (
        current
        and "traceback :" in current.line.raw
        and text.startswith("  ")
        and text[2:3].strip()
    ):
        text = text[2:]  # torchrun indents the traceback that it quotes
    if not text or text[0].isspace():
        quoted = _JSON_END.match(text)
        return (quoted[1], quoted[2]) if quoted else None
    sure = _SURE_END.match(text)
    if sure:
        return sure[1], (sure[2] or "").strip()
    shown = _REPR_END.match(text)
    if shown:
        return shown[1], shown[3]
    if current is None or current.ended or not current.frames:
        return None
    end = _ANY_END.match(text)
    if end is None or end[1] in _NOT_KINDS or "Warning" in end[1]:
        return None
    # A name alone must look like a class; with a message it may be anything that has a dot or a capital.
    name = end[1].rsplit(".", 1)[-1].lstrip("_")
    if not name[:1].isupper() or (end[2] is None and "." not in end[1] and not name[1:2].islower()):
        return None
    return end[1], (end[2] or "").strip()
