"""Asks every rule about every line, and says how much an error counts that the job may have outlived."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from headway.diagnose import exceptions
from headway.diagnose.causes import cause_of
from headway.diagnose.evidence import Evidence, Line, Raised, Stream
from headway.diagnose.ranks import root_block
from headway.diagnose.reader import shape_of
from headway.diagnose.rule import (
    ANY,
    CONSEQUENCE,
    EXCEPTION,
    FACT,
    PLAIN,
    ROOT,
    SUMMARY,
    Match,
    Rule,
    Traceback,
)
from headway.diagnose.rulebook import RULES
from headway.diagnose.tracebacks import find_tracebacks

ADVICE_CHARS = 60  # how far behind a match words such as "to avoid" speak about it

# An error counts for this much when the job went on after it …
SURVIVED = 0.15
# … when the log ends well …
ENDED_WELL = 0.4
# … when it is a mere warning …
WARNED = 0.5
# … when it was printed through a logger, by a thread, or by a helper process.
LOGGED = 0.8
# … when our bootstrap reported it of another thread or of a helper process.
HELPER = 0.6
# … when the same script printed another exception after it.
OUTLIVED = 0.6
# … when the program printed it, and ended of another one that our bootstrap reported.
CAUGHT = 0.4
# … when it was printed by Python, and a signal ended the process: Python does not die of both.
BEFORE_SIGNAL = 0.6
_SUDDEN = frozenset({4, 7, 8, 9, 11})  # SIGILL SIGBUS SIGFPE SIGKILL SIGSEGV

# What a module is installed as, where the names differ.
PACKAGES = {
    "cv2": "opencv-python",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "PIL": "pillow",
    "yaml": "pyyaml",
    "dotenv": "python-dotenv",
    "Crypto": "pycryptodome",
    "bs4": "beautifulsoup4",
    "flash_attn": "flash-attn",
    "google": "protobuf",
}

_SUCCESS = re.compile(
    r"(?i)training (?:is |has been |was )?(?:done|complete|finished)|exits successfully"
    r"|EXIT_CODE=0\b|after training is done"
    r"|(?:job|run|training|finetuning|evaluation) (?:completed|finished|succeeded)|(?:completed"
    r"|finished) successfully|exited? with (?:exit )?code 0\b"
    r"|training time \d|done training|Total training time"
)
# Signs that the program itself, not the script around it, got to its end.
_WENT_ON = re.compile(
    r"\*{5} \w+ metrics \*{5}|\btrain_runtime\b|exits successfully"
    r"|`Trainer\.fit` stopped|Final validation metrics|Saving (?:prediction|model|final)|[Mm]odel (?:weights )?saved"
)
_FAILED_SAID = re.compile(
    r"Root Cause \(first observed failure\)|Exited with exit code [1-9]|exitcode\W+-?[1-9]"
    r"|return code = -?[1-9]"
)
_SHELL = re.compile(r"sh: |: line \d+: |: command not found")
_LAUNCHED = re.compile(
    r"(?i)rank|torchrun|torch/distributed|torch\.distributed|deepspeed|accelerate|launch|srun:|mpirun"
    r"|nccl|gloo|horovod|ray::|slurm"
)
_SHELL_MISSES = re.compile(r": command not found\s*$")
# Lines of a usage text speak of errors without having any.
_HELP = re.compile(r"\s*(?:usage: |-\w,? |(?:-\w, )?--[\w-]+(?: |=|$))")
_WATCHDOG = re.compile(
    r"Watchdog caught collective.*?SeqNum=(\d+), OpType=(\w+)(?:, NumelIn=(\d+))?"
)


def find_matches(evidence: Evidence) -> list[Match]:
    found: list[Match] = []
    for index, stream in enumerate(evidence.streams):
        own = list(_stream_matches(index, stream, evidence))
        _lower_outlived(own, stream)
        found += own
    found += _divergence(evidence)
    found += _raised_matches(evidence, found)
    found += _diverged(evidence, found)
    found += _exit_matches(evidence)
    return found


def _diverged(evidence: Evidence, others: Sequence[Match]) -> Iterator[Match]:
    """The losses printed last were not finite, and nothing that is known by its words happened."""
    for other in others:
        is_cause = other.role in (ROOT, FACT) and not other.generic
        if is_cause and other.confidence >= 0.6:
            return
    for index, stream in enumerate(evidence.streams):
        if stream.loss_nan_from is None:
            continue
        line = next((line for line in stream.lines if line.number == stream.loss_nan_from), None)
        if line is None:
            continue
        rank = stream.rank if line.rank is None else line.rank
        yield Match("nonfinite_loss", 0.72, ROOT, line, index, line.number, rank=rank)


def classify(kind: str, message: str, frames: Sequence[str] = ()) -> tuple[str, float]:
    """(cause, confidence) of an exception of which only this is known."""
    line = Line(0, 0, message, message)
    match = _explain_exception(Traceback(kind, message, line, list(frames), whole=True), -1)
    return match.cause, match.confidence


def _raised_matches(evidence: Evidence, printed: Sequence[Match]) -> Iterator[Match]:
    """Exceptions that our bootstrap reported: the exact time for those that were printed too, and
    those that were not (a launcher swallowed them).

    None explains a sudden signal; one of a thread or a helper process explains no signal at all.
    """
    for raised in evidence.raised:
        if evidence.signal in _SUDDEN or (not raised.ended and evidence.signal is not None):
            continue
        same = next((match for match in printed if _is_same(match, raised, evidence)), None)
        if same is not None:
            if raised.time_s is not None:
                same.line.time_s = raised.time_s
            same.rank = raised.rank
            if raised.ended and same.traceback and not exceptions.is_wrapper(same.traceback):
                _lower_caught(same, printed)
            continue
        text = f"{raised.kind}: {raised.message}".strip(": ")
        line = Line(0, 0, text, text, time_s=raised.time_s)
        frames = [raised.place] if raised.place else []
        match = _explain_exception(Traceback(raised.kind, raised.message, line, frames, True), -1)
        match.rank = raised.rank
        match.order = -1.0
        if not raised.ended:
            match.confidence *= HELPER
        yield match


def _lower_outlived(matches: Sequence[Match], stream: Stream) -> None:
    """One process that printed several exceptions ended of the last one. Known by the script that they
    came through, where no launcher speaks: ranks print the same script's, and there the first counts.
    """
    ends = [one for one in matches if _is_of_main(one)]
    if len(ends) < 2 or any(_LAUNCHED.search(line.raw) for line in stream.lines):
        return
    last = ends[-1]
    for one in ends[:-1]:
        # Tracebacks of two processes that run into each other share their frames.
        apart = one.traceback and last.traceback and one.traceback.frames != last.traceback.frames
        if apart and _script(one) == _script(last) and one.line.text != last.line.text:
            one.confidence *= OUTLIVED


def _is_of_main(match: Match) -> bool:
    trace = match.traceback
    return (
        trace is not None
        and match.role == ROOT
        and trace.whole
        and bool(trace.frames)
        and not (trace.logged or trace.inner)
        and trace.frames[0].endswith("in <module>")
    )


def _script(match: Match) -> str:
    return match.traceback.frames[0].rsplit(":", 1)[0] if match.traceback else ""


def _lower_caught(last: Match, printed: Sequence[Match]) -> None:
    """What ended the process is known: exceptions that it printed whole before were caught. One of a
    thread may be what the end follows from, so that it keeps its weight.
    """
    for one in printed:
        trace = one.traceback
        if trace is None or not trace.whole or trace.logged or trace.inner or one.role != ROOT:
            continue
        by_the_same = one.stream == last.stream and one.line.writer == last.line.writer
        if by_the_same and one.line.number < last.line.number:
            one.confidence *= CAUGHT


def _is_same(match: Match, raised: Raised, evidence: Evidence) -> bool:
    if match.traceback is None or match.traceback.name != raised.kind.rsplit(".", 1)[-1]:
        return False
    stream = evidence.streams[match.stream]
    rank = match.rank if match.rank is not None else stream.rank
    if None not in (rank, raised.rank) and rank != raised.rank:
        return False
    first = raised.message.split("\n", 1)[0].strip()
    return match.traceback.message[:80] == first[:80]


def _stream_matches(index: int, stream: Stream, evidence: Evidence) -> Iterator[Match]:
    tracebacks, quoted = find_tracebacks(stream.lines)
    ends = {one.line.number: one for one in tracebacks}
    block = root_block(stream)
    for line in stream.lines:
        traceback = ends.get(line.number)
        if traceback is not None and traceback.handled:
            continue
        if traceback is None and line.number in quoted:
            continue
        if evidence.usual_lines and shape_of(line.text) in evidence.usual_lines:
            continue
        match: Match | None
        if traceback is not None:
            match = _explain_exception(traceback, index)
        else:
            match = _explain_line(line, index)
        if match is None:
            continue
        match.rank = line.rank if line.rank is not None else match.rank
        match.node = line.node or stream.node
        match.order = line.number
        offsets, seconds = stream.clock
        if offsets:
            at = bisect_right(offsets, line.offset) - 1
            line.time_s = seconds[max(0, at)]
        match.confidence *= _survival(match, stream, evidence)
        alone = block is None and line.rank is None  # not one of many ranks in a launcher's log
        if evidence.signal in _SUDDEN and alone and _is_of_python(match):
            match.confidence *= BEFORE_SIGNAL
        if block is not None and block.number < line.number <= block.number + 12:
            match.confidence += 0.01  # what the launcher saw first
        if match.cause == "command_not_found" and _SHELL.search(line.text):
            match.confidence *= _shell_went_on(match, stream, evidence)
        yield match


def _is_of_python(match: Match) -> bool:
    """An exception of a helper process, then: its own would have ended the rank without a signal."""
    known = match.traceback is not None and match.role == ROOT
    return known and cause_of(match.cause).cls == "user"


def _divergence(evidence: Evidence) -> Iterator[Match]:
    """Watchdogs of several ranks that waited at one number in different operations."""
    first: dict[str, tuple[int | None, str]] = {}
    for index, stream in enumerate(evidence.streams):
        for line in stream.lines:
            found = _WATCHDOG.search(line.text) if "atchdog" in line.text else None
            if found is None:
                continue
            rank = line.rank if line.rank is not None else stream.rank
            operation = f"{found[2]} {found[3]}"
            other = first.setdefault(found[1], (rank, operation))
            if other[0] != rank and other[1] != operation:
                yield Match(
                    "collective_divergence",
                    0.9,
                    ROOT,
                    line,
                    index,
                    line.number,
                    rank=rank,
                    node=line.node,
                )
                return


def _explain_exception(one: Traceback, index: int) -> Match:
    text = f"{one.kind}: {one.message}"
    found = [
        row
        for row in _asked(text, EXCEPTION)
        if row[0].role in (ROOT, FACT) and exceptions.may_mean(one, row[0].cause)
    ]
    consequence = next((row for row in _asked(text, EXCEPTION) if row[0].role == CONSEQUENCE), None)
    if exceptions.is_wrapper(one):
        cause, confidence = "code_exception", 0.3
        role = CONSEQUENCE
        for role in (FACT, SUMMARY, CONSEQUENCE):
            row = next((row for row in _asked(text, EXCEPTION) if row[0].role == role), None)
            if row:
                return _match(row, one.line, index, one)
        return Match(cause, confidence, role, one.line, index, traceback=one)
    best = max(found, key=lambda row: row[0].confidence, default=None)
    if consequence and (best is None or best[0].confidence <= consequence[0].confidence):
        return _match(consequence, one.line, index, one)
    cause, confidence = exceptions.explain(one)
    summary = next((row for row in _asked(text, EXCEPTION) if row[0].role == SUMMARY), None)
    if best is None and summary is not None and cause == "code_exception":
        return _match(summary, one.line, index, one)
    if best is not None and (best[0].confidence >= confidence or cause == "code_exception"):
        match = _match(best, one.line, index, one)
    else:
        match = Match(cause, confidence, ROOT, one.line, index, traceback=one)
        match.generic = cause == "code_exception"
        match.fuzzy = exceptions.is_ambiguous(one)
    if one.logged and not one.inner:
        match.confidence *= LOGGED
    if not one.whole:
        match.confidence *= 0.97 if exceptions.is_builtin(one) or not match.generic else 0.8
    return match


def _explain_line(line: Line, index: int) -> Match | None:
    if line.level in ("D", "I") or _HELP.match(line.text):
        return None
    found = _asked(line.text, PLAIN)
    warns = line.level == "W" and "NCCL WARN" not in line.text
    if warns:
        found = [row for row in found if row[0].role in (FACT, CONSEQUENCE)]
    if not found:
        return None
    order = {FACT: 3, ROOT: 2, SUMMARY: 1, CONSEQUENCE: 0}
    best = max(
        found,
        key=lambda row: (order[row[0].role] if row[0].confidence > 0.6 else 0, row[0].confidence),
    )
    match = _match(best, line, index, None)
    if warns and match.role == CONSEQUENCE:
        match.confidence *= WARNED
    return match


def _asked(text: str, where: str) -> list[tuple[Rule, re.Match[str]]]:
    low = text.lower()
    found = []
    for rule in RULES:
        if rule.where not in (ANY, where):
            continue
        for literal in rule.literals:
            if literal in low:
                break
        else:
            continue
        matched = rule.pattern.search(text)
        if matched and not (
            rule.unless and rule.unless.search(text, 0, matched.end() + ADVICE_CHARS)
        ):
            found.append((rule, matched))
    return found


def _match(
    row: tuple[Rule, re.Match[str]], line: Line, index: int, traceback: Traceback | None
) -> Match:
    rule, matched = row
    groups = matched.groupdict()
    rank = int(groups["rank"]) if groups.get("rank") else None
    advice = rule.advice
    for name, value in groups.items():
        if name == "module" and value:
            value = PACKAGES.get(value.split(".")[0], value.split(".")[0])
        advice = advice.replace("{" + name + "}", value or "…")
    if "{" in advice:
        advice = ""
    match = Match(
        rule.cause, rule.confidence, rule.role, line, index, 0.0, rule.cls, advice, traceback, rank
    )
    match.fuzzy = rule.fuzzy
    return match


def _exit_matches(evidence: Evidence) -> Iterator[Match]:
    """What the exit code, the signal and the machine's own counters say."""
    for cause, confidence, role, text in exit_words(evidence):
        line = Line(0, 0, text, text)
        yield Match(cause, confidence, role, line, -1, order=float("inf"))


def exit_words(evidence: Evidence) -> Iterator[tuple[str, float, str, str]]:
    code = evidence.exit_code
    number = evidence.signal
    if number is None and code is not None and code < 0:
        number = -code
    if number is None and code is not None and 128 < code < 160:
        number = code - 128
    if evidence.oom_kills:
        yield (
            "host_oom",
            0.97,
            FACT,
            "the kernel killed a process of the job because memory ran out",
        )
    if evidence.reason == "walltime":
        yield "walltime", 0.97, FACT, "stopped at its time limit"
    if evidence.reason == "preempted":
        yield "preempted", 0.97, FACT, "stopped because its place was wanted"
    if evidence.reason == "stop":
        yield "cancelled", 0.99, FACT, "stopped on request"
    said = {
        4: ("illegal_instruction", 0.9),
        6: ("segfault_or_abort", 0.7),
        7: ("shm_or_loader_worker", 0.62),
        8: ("segfault_or_abort", 0.75),
        9: ("sigkill_unexplained", 0.72),
        11: ("segfault_or_abort", 0.85),
        2: ("cancelled", 0.8),
        15: ("cancelled", 0.62),
        24: ("walltime", 0.7),
    }.get(number or 0)
    if said:
        what = (
            f"signal {number}"
            if evidence.signal is not None or code is None
            else f"exit code {code}"
        )
        yield said[0], said[1], SUMMARY, what
    by_code = {
        124: ("walltime", 0.6),
        125: ("image_pull", 0.3),
        126: ("command_not_found", 0.75),
        127: ("command_not_found", 0.85),
        200: ("declared_transient", 0.8),
        201: ("declared_conflict", 0.8),
        210: ("declared_permanent", 0.8),
        2: ("bad_argument", 0.3),
    }.get(code if code is not None else -1)
    if by_code:
        yield by_code[0], by_code[1], SUMMARY, f"exit code {code}"


def _survival(match: Match, stream: Stream, evidence: Evidence) -> float:
    """How much an error counts that the job may have outlived."""
    if match.role == FACT:
        return 1.0
    number = match.line.number
    if match.traceback is not None and match.traceback.last is not None:
        number = match.traceback.last.number
    later = [at for at in stream.progress if at > number]
    if len(later) >= 3:
        return SURVIVED
    if evidence.failed:
        return 1.0
    text = stream.lines
    ended_well = any(line.number > number and _SUCCESS.search(line.text) for line in text[-400:])
    said = any(_FAILED_SAID.search(line.text) for line in text[-400:])
    # What a thread or a peer says at the end of a program that had done its work, counts as little.
    vague = match.role == SUMMARY and match.confidence < 0.6
    threaded = match.traceback is not None and match.traceback.logged
    late = match.role == CONSEQUENCE or vague or threaded
    went_on = any(
        (late or line.number > number) and _WENT_ON.search(line.text) for line in text[-400:]
    )
    if went_on and not said:
        return ENDED_WELL
    if ended_well and not said:
        uncaught = (
            match.traceback is not None and match.traceback.whole and not match.traceback.logged
        )
        return 0.7 if uncaught else ENDED_WELL
    return 1.0


def _shell_went_on(match: Match, stream: Stream, evidence: Evidence) -> float:
    """A script prints "command not found" and goes on, unless that was its last word."""
    later = any(
        line.number > match.line.number and _SHELL_MISSES.search(line.text) for line in stream.lines
    )
    if evidence.exit_code in (126, 127):
        return 0.7 if later else 1.0  # the last of them gave the exit code
    if evidence.signal is not None or (evidence.exit_code or 0) > 2:
        return 0.4
    return 0.6 if stream.line_count - match.line.number > 10 else 1.0
