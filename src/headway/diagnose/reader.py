"""From the bytes of a log to the lines worth reading: prefixes of launchers taken off, rank, node and time noted.

`read_stream` takes chunks, so that a log of any size passes through a bounded memory. A log of up to
`WHOLE_BYTES_MAX` is kept whole. Of a longer one the start and the end are kept, and between them the lines around
anything that sounds like trouble; a line that repeats but for its numbers is kept a few times only. Both tests run at
about the speed of splitting lines: the first because it is one dictionary look-up per line, the second because it
searches whole chunks for a few literals.
"""

import calendar
import re
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator

from headway.diagnose.evidence import Line, Stream

WHOLE_BYTES_MAX = 1 << 20
HEAD_LINES, TAIL_LINES = 2_000, 1_000
LINES_MAX = 10_000  # of those around trouble, in a long log
REPEATS_MAX = 6
LINE_BYTES_MAX = 1 << 20  # a longer one is cut in two
LINE_CHARS_MAX = 2_000
PROGRESS_MAX = 400
PROGRESS_KEPT = 6  # of the last lines of one shape, in a long log
NAN_LOSSES_MIN = 3  # so many at the end of a log, after finite ones, mean that it diverged

# Words of trouble for the first sieve over long logs (lower case). The rules look at what is around them; what
# has none of these words is not seen in a log of more than WHOLE_BYTES_MAX but at its start and end.
# fmt: off
SIEVE = (
    b"rror", b"exception", b"traceback", b"kill", b"fault", b"fatal", b"fail", b"abort", b"signal", b"no such",
    b"not found", b"denied", b"cancel", b"oom", b"memory", b"timed out", b"timeout", b"due to", b" xid", b"core dumped",
    b"nan", b"cannot", b"can't", b"no space", b"quota", b"unable", b"interrupt", b"preempt", b"evict", b"mismatch",
    b"stuck", b"unrecognized", b"unsupported", b" pd ",
    b"no module", b"could not", b"deadline", b"ready", b"slots", b" lost", b" dead", b"waiting for",
    b"insufficient", b"terminat", b"illegal", b"refused", b"invalid",
    b"panic", b"unbound",
)
# fmt: on

_DIGITS = b"0123456789.:-+ \t"
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_HEADER = "Traceback (most recent call last)"

_STAMP = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\s+(?:std(?:out"
    r"|err) [FP] )?"
)
_MPI = re.compile(r"(?:\w{3} \w{3} +\d+ [\d:]+ \d{4})?\[(\d+),(\d+)\]<std(?:out|err)>:\s?")
_RANK = re.compile(r"\[[Rr]ank[ :]?(\d+)\](?:: ?|(?=\[))")
_LOCAL = re.compile(r"\[(?:default|trainer|worker)_?(\d+)\]:\s?")
_RAY = re.compile(r"\x1b?\(([\w.<>]+ )?pid=\d+(?:, ip=([\w.:]+))?\)\s")
_COMPOSE = re.compile(r"([\w.-]+)\s+\| ")
_NOTEBOOK = re.compile(r"\d+\.\d+s\t\d+\t")  # seconds and line, as notebook services print
_POD = re.compile(r"\[pod/([\w.-]+)/[\w.-]+\] ")
_LABEL = re.compile(r"\s{0,4}(\d{1,5}): ")
_HOST = re.compile(
    r"((?:\d{1,3}\.){3}\d{1,3}|localhost|[A-Za-z][\w.]*-[\w.-]*|[A-Za-z][A-Za-z_.]*\d[\w.-]*): "
)
_NOT_HOST = re.compile(
    r"(?:python|pypy|bash|sh|slurmstepd|torchrun|mpirun|nvidia|pdsh|docker|f77|gcc)", re.I
)
_NCCL = re.compile(r"(?:\[[^\]]*\] )?([\w.-]+):\d+:\d+ \[\d+\] ")

_LEVEL_WORD = re.compile(
    r"^.{0,60}?\b(DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL)\b", re.S
)
# A bar of tqdm with a message of somebody else behind it, on one line.
_BAR = re.compile(
    r"^.{0,80}?\b\d+(?:/\d+|it) \[[^\]\[]{5,60}(?:it/s|s/it)[^\]\[]{0,200}\](?=[A-Za-z/])"
)
_LEVEL_TENSORFLOW = re.compile(r"(?:[\d-]{10} [\d:.]+: )?([IWEF]) [\w./]+\.(?:cc|cpp|h):\d+\]")
_LEVEL_GLOG = re.compile(r"^\W{0,2}([IWEF])\d{3,4} \d\d:\d\d:\d\d")
_WARNS = re.compile(r"^\S+:\d+: \w*Warning: |^\w*Warning: |^\[?W(?:ARN|ARNING)?\]?[ :]")
_TIME = re.compile(r"(?:\d{4}-|\d{4}/)?(\d\d)[-/](\d\d)[ T_](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?")
_TIME_GLOG = re.compile(r"\b[IWEF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)\.(\d+)")

PROGRESS = re.compile(
    r"(?i)\b(?:step|iter|iteration|global_step|batch|epoch)s?\b\W{0,12}?(\d+)(?!\w*%)"
    r"|\|\s*(\d+)/\d+ \[\d|\b(\d+)/\d+ \[=*>?"
)
LOSS = re.compile(
    r"(?i)\b\w*loss\b\W{0,4}(?:\w+\W{1,3})?(nan|-?inf(?:inity)?|[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)\b"
)
_TROUBLE = re.compile(r"(?i)error|exception|fail|traceback|abort|killed|watchdog")
_FILE_RANK = re.compile(
    r"(?i)(?:rank|worker|proc|process|task|local_rank|global_rank)[-_.]?(\d+)(?!\d*[-_.]?\w*\.gz)"
)
_FILE_NUMBER = re.compile(r"(?i)(?:std)?(?:out|err|log)[-_.](\d{1,4})$")
_TASK = re.compile(r"(?i)\b((?:worker|launcher|master|trainer|ps|chief)-\d+)\b")


def read_stream(
    name: str, chunks: Iterable[bytes], rank: int | None = None, task: str | None = None
) -> Stream:
    """One log. `rank` and `task` are taken from the name where they are not given."""
    kept, line_count, size, late_progress = _select(chunks)
    stream = Stream(name=name, lines=[], rank=rank, task=task, line_count=line_count, size=size)
    base = name.rsplit("/", 1)[-1]
    if rank is None:
        named = _FILE_RANK.search(base) or _FILE_NUMBER.match(base)
        stream.rank = int(named[1]) if named else None
    if task is None:
        named = _TASK.search(base)
        stream.task = named[1] if named else None
    stream.kind = _kind(base)
    texts = [(number, offset, _clean(line)) for number, offset, line in kept]
    stream.lines = list(_parse(texts))
    _note_progress(stream, late_progress)
    return stream


def join_parts(head: Stream, tail: Stream, start: int) -> Stream:
    """One stream of which only the first part, and what begins at byte `start`, were read."""
    first = head.line_count + 1
    for line in tail.lines:
        line.offset += start
        line.number += first
    head.skipped_from = head.size
    head.lines += tail.lines
    head.progress += [number + first for number in tail.progress]
    head.line_count = first + tail.line_count
    head.size = start + tail.size
    if tail.loss_nan_from is not None:
        head.loss_nan_from = tail.loss_nan_from + first
    return head


def shape_of(text: str) -> str:
    """What two lines share that differ in numbers only."""
    return re.sub(r"0x[0-9a-f]+|[\d.:+-]+", "#", text.strip())[:200]


def _kind(base: str) -> str:
    low = base.lower()
    if any(word in low for word in ("dmesg", "kernel", "kern.log", "syslog", "journal")):
        return "kernel"
    if "event" in low:
        return "events"
    if "err" in low:
        return "errors"
    return "output"


def _select(
    chunks: Iterable[bytes],
) -> tuple[list[tuple[int, int, bytes]], int, int, list[tuple[int, bytes]]]:
    """(number, offset, line) of the lines to read, counts of lines and bytes, and late lines of progress."""
    whole: list[tuple[int, int, bytes]] | None = []
    kept: list[tuple[int, int, bytes]] = []
    tail: list[tuple[int, int, bytes]] = []
    seen: dict[bytes, int] = {}
    moving: dict[bytes, deque[tuple[int, bytes]]] = {}
    size = 0
    number = 0
    for block in _blocks(chunks):
        rows: list[tuple[int, int, bytes]] = []
        for line in block:
            number += 1
            rows.append((number, size, line))
            size += len(line) + 1
        if whole is not None:
            whole += rows
            if size <= WHOLE_BYTES_MAX:
                continue
            # It is a long one after all: from here on only what matters is kept.
            rows, whole = whole, None
            kept, rows = rows[:HEAD_LINES], rows[HEAD_LINES:]
        tail = (tail + rows)[-TAIL_LINES:]
        fresh = []
        for row in rows:
            shape = row[2].translate(None, _DIGITS)
            count = seen.get(shape, 0)
            seen[shape] = count + 1
            if count < REPEATS_MAX:
                fresh.append(row)
                # Progress repeats, so that lines seen once need not be looked at.
                if count == 1 and PROGRESS.search(row[2][:400].decode("utf-8", "replace")):
                    moving[shape] = deque(maxlen=PROGRESS_KEPT)
            if shape in moving:
                moving[shape].append((row[0], row[2]))
        if len(kept) < LINES_MAX:
            kept += _sieve(fresh)
    if whole is not None:
        return whole, number, max(0, size), []
    last = kept[-1][0] if kept else 0
    kept += [row for row in tail if row[0] > last]
    late = sorted(row for rows in moving.values() for row in rows)[-PROGRESS_MAX:]
    return kept, number, size, late


def _blocks(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Whole lines, many at a time. A carriage return rewrites a line: what was shown last, counts."""
    rest = b""
    for chunk in chunks:
        data = rest + chunk
        cut = data.rfind(b"\n")
        if cut < 0:
            if len(data) < LINE_BYTES_MAX:
                rest = data
                continue
            cut = len(data)
        yield data[:cut].split(b"\n")
        rest = data[cut + 1 :]
    if rest:
        yield rest.split(b"\n")


def _sieve(rows: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """The rows with a word of trouble, and some around them."""
    starts = []
    at = 0
    for row in rows:
        starts.append(at)
        at += len(row[2]) + 1
    joined = b"\n".join([row[2] for row in rows]).lower()
    wanted: set[int] = set()
    for word in SIEVE:
        after = 60 if word == b"traceback" else 3
        position = joined.find(word)
        while position >= 0:
            index = bisect_right(starts, position) - 1
            wanted.update(range(max(0, index - 3), index + after + 1))
            if index + 1 >= len(starts):
                break
            position = joined.find(word, starts[index + 1])
    return [rows[index] for index in sorted(wanted) if index < len(rows)]


def _clean(line: bytes) -> str:
    if b"\r" in line:
        line = _last_drawn(line)
    text = line[: LINE_CHARS_MAX * 4].decode("utf-8", "replace")
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return text.replace("\x00", "")[:LINE_CHARS_MAX]


def _last_drawn(line: bytes) -> bytes:
    """What a line showed at last; but a traceback may start behind any of the bars drawn before."""
    parts = [part for part in line.split(b"\r") if part.strip()]
    last = parts[-1] if parts else b""
    return next((part for part in parts if _HEADER.encode() in part), last)


def _parse(texts: list[tuple[int, int, str]]) -> Iterator[Line]:
    labels = _common_labels(text for _, _, text in texts)
    now: float | None = None
    for number, offset, raw in texts:
        line = Line(number, offset, raw, raw)
        _take_prefixes(line, labels)
        found = time_of(raw)
        if found is not None:
            now = found
        line.time_s = now
        line.level = level_of(line.text)
        at = line.text.find(_HEADER)
        if at > 0:
            line.text = line.text[at:]
        elif "it]" in line.text or "/s" in line.text:
            line.text = _BAR.sub("", line.text)
        yield line


def _common_labels(texts: Iterable[str]) -> set[str]:
    """Words before a colon that start many lines: labels of srun, names of hosts (pdsh, DeepSpeed)."""
    counts: Counter[str] = Counter()
    for text in texts:
        for pattern in (_LABEL, _HOST):
            label = pattern.match(text)
            if label:
                counts[label[1]] += 1
    return {label for label, count in counts.items() if count >= 3 and not _NOT_HOST.match(label)}


def _take_prefixes(line: Line, labels: set[str]) -> None:
    text = line.text
    writer = []
    for _ in range(5):
        found = _RANK.match(text) or _MPI.match(text)
        if found:
            line.rank = int(found[found.lastindex or 1])
        else:
            found = _LOCAL.match(text)
            if found:
                line.rank = int(found[1]) if line.rank is None else line.rank
        if not found:
            found = _LABEL.match(text) or _HOST.match(text)
            if found and found[1] not in labels:
                found = None
            if found and not found[1].isdigit():
                line.node = found[1]
        if not found:
            found = _RAY.match(text) or _COMPOSE.match(text) or _POD.match(text)
        if found:
            writer.append(found[0])
        else:
            found = _STAMP.match(text) or _NOTEBOOK.match(text)
        if not found or not found[0]:
            break
        text = text[found.end() :]
    line.text = text
    line.writer = "".join(writer)
    if line.rank is None and "ank" in text:
        said = re.search(r"\[(?:[^\]]* )?[Rr]ank[ :]?(\d+)\]", text)
        line.rank = int(said[1]) if said else None
    if line.node is None:
        nccl = _NCCL.match(text)
        line.node = nccl[1] if nccl else None


def level_of(text: str) -> str:
    glog = _LEVEL_GLOG.match(text) or _LEVEL_TENSORFLOW.match(text)
    if glog:
        return glog[1]
    if _WARNS.match(text):
        return "W"
    word = _LEVEL_WORD.match(text[:120])
    return word[1][0].replace("C", "F").replace("N", "I") if word else ""


def time_of(text: str) -> float | None:
    """Seconds since the start of a leap year: logs often leave the year out, and only the order matters."""
    found = _TIME.search(text[:160]) or _TIME_GLOG.search(text[:160])
    if not found:
        return None
    month, day, hour, minute, second = (int(found[index]) for index in range(1, 6))
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60):
        return None
    fraction = float("0." + found[6]) if found[6] else 0.0
    return (
        calendar.timegm((2000, month, min(day, 28), hour, minute, second))
        + (day - min(day, 28)) * 86400
        + fraction
    )


def _note_progress(stream: Stream, late: list[tuple[int, bytes]]) -> None:
    """Where it went on: lines with a step that is higher than those before."""
    was_finite = False
    not_finite: list[int] = []  # lines with losses since the last finite one
    highest = -1
    advances: list[int] = []
    rows = [(line.number, line.text) for line in stream.lines]
    rows += [(number, line[:400].decode("utf-8", "replace")) for number, line in late]
    rows.sort()
    for number, text in rows:
        loss = LOSS.search(text)
        if loss and not _TROUBLE.search(text):
            finite = loss[1].lower().lstrip("-") not in ("nan", "inf", "infinity")
            if finite:
                was_finite = True
                not_finite = []
            else:
                not_finite.append(number)
        found = PROGRESS.search(text)
        if not found or _TROUBLE.search(text):
            continue
        value = int(next(group for group in found.groups() if group is not None))
        if value > highest:
            advances.append(number)
            highest = value
        elif value < highest // 2 and value <= 2:
            highest = value  # another epoch, or another bar
    stream.progress = advances[-PROGRESS_MAX:]
    if was_finite and len(not_finite) >= NAN_LOSSES_MIN:
        stream.loss_nan_from = not_finite[0]
