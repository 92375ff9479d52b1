"""Evidence in, one verdict out: every rule is asked, all ranks are put on one time line, and the first cause is chosen.

Pure. `diagnose` is called by `hw why --logs` and by the server at the end of an attempt.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from headway.diagnose import exceptions
from headway.diagnose.causes import RETRY_TEXT, cause_of
from headway.diagnose.evidence import Evidence, Line, Stream
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
from headway.diagnose.rules import RULES
from headway.diagnose.tracebacks import find_tracebacks

THRESHOLD = 0.5  # below, nothing is said to be known
HYPOTHESES_MAX = 3
EVIDENCE_MAX = 4
TEXT_CHARS_MAX = 400

# An error counts for this much when the job went on after it …
SURVIVED = 0.15
# … when the log ends well …
ENDED_WELL = 0.4
# … when it was printed through a logger, by a thread, or by a helper process.
LOGGED = 0.8

_SUCCESS = re.compile(
    r"(?i)training (?:is |has been |was )?(?:done|complete|finished)|exits successfully|EXIT_CODE=0\b|after training is done"
    r"|(?:job|run|training|finetuning|evaluation) (?:completed|finished|succeeded)|(?:completed|finished) successfully|exited? with (?:exit )?code 0\b"
    r"|training time \d|done training|all done|^done\.?$|Total training time"
)
_FAILED_SAID = re.compile(r"Root Cause \(first observed failure\)|Exited with exit code [1-9]|exitcode\W+-?[1-9]|return code = -?[1-9]")
_ROOT_BLOCK = re.compile(r"Root Cause \(first observed failure\)")
_BLOCK_FIELD = re.compile(r"^\s*(time|host|rank|exitcode|error_file|traceback)\s*: ?(.*)$")
_SRUN_TASK = re.compile(r"srun: error: (\S+): task (\d+): (?!Terminated)(\w.*)")
_PROCESS_N = re.compile(r"-- Process (\d+) terminated with the following error")
_MPI_RANK = re.compile(r"MPI_ABORT was invoked on rank (\d+)|Process name: \[\[\d+,\d+\],(\d+)\]|process rank (\d+) with PID|on node \d+ \(rank (\d+) in comm")
_JSON_LOCAL = re.compile(r'"local_rank": (\d+)')
_SAYS_RANK = re.compile(r"\b[Rr]ank[ :=#]?(\d+)\b")

# Errors that a rank shows when another one, or its node, is gone.
SOFT = frozenset({"remote_service", "rendezvous", "collective_cascade", "collective_stall", "storage_io", "fabric_network"})
OUTRANKED_BY_OOM = frozenset({"shm_or_loader_worker", "sigkill_unexplained", "code_exception"}) | SOFT


@dataclass(slots=True)
class Finding:
    """As in the contract of `hw why --json`."""

    cause: str
    cls: str
    confidence: float
    text: str
    retry: str
    advice: str
    rank: int | None = None
    task: str | None = None
    node: str | None = None
    evidence: list[dict[str, object]] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        return {
            "cause": self.cause,
            "class": self.cls,
            "confidence": round(self.confidence, 2),
            "text": self.text,
            "task": self.task,
            "rank": self.rank,
            "node": self.node,
            "evidence": self.evidence,
            "advice": self.advice,
            "retry": RETRY_TEXT[self.retry],
        }


@dataclass(slots=True)
class Diagnosis:
    verdict: str
    findings: list[Finding]
    hypotheses: list[Finding]
    fingerprint: str | None = None


@dataclass(slots=True)
class _RootBlock:
    """torchrun's own summary of the first failure it saw."""

    rank: int | None = None
    host: str | None = None
    exit_code: int | None = None
    number: int = 0


def diagnose(evidence: Evidence) -> Diagnosis:
    if evidence.succeeded:
        return Diagnosis("nothing is wrong with it, as far as is known", [], [])
    matches = list(find_matches(evidence))
    ranked = rank_matches(matches, evidence)
    fingerprint = fingerprint_of(evidence, matches)
    if not ranked or ranked[0].confidence < THRESHOLD:
        guesses = [_finding(match, evidence, matches) for match in _distinct(ranked)[:HYPOTHESES_MAX]]
        if not evidence.failed and not guesses:
            return Diagnosis("nothing is wrong with it, as far as is known", [], [])
        if not evidence.failed:
            return Diagnosis("nothing that ends a job was found", [], guesses, fingerprint)
        return Diagnosis("unknown: " + _end_text(evidence), [], guesses, fingerprint)
    best = _finding(ranked[0], evidence, matches)
    others = [match for match in _distinct(ranked) if match.cause != best.cause]
    hypotheses = [_finding(match, evidence, matches) for match in others[:HYPOTHESES_MAX]]
    return Diagnosis(best.text, [best], hypotheses, fingerprint)


# -- matching ----------------------------------------------------------------------------------------------------------


def find_matches(evidence: Evidence) -> Iterator[Match]:
    for index, stream in enumerate(evidence.streams):
        yield from _stream_matches(index, stream, evidence)
    yield from _exit_matches(evidence)


def _stream_matches(index: int, stream: Stream, evidence: Evidence) -> Iterator[Match]:
    ends = {one.line.number: one for one in find_tracebacks(stream.lines)}
    for line in stream.lines:
        traceback = ends.get(line.number)
        if traceback is not None and traceback.handled:
            continue
        if evidence.usual_lines and shape_of(line.text) in evidence.usual_lines:
            continue
        if traceback is not None:
            match = _explain_exception(traceback, index)
        else:
            match = _explain_line(line, index)
        if match is None:
            continue
        match.rank = line.rank if line.rank is not None else match.rank
        match.node = line.node or stream.node
        match.order = line.number
        match.confidence *= _survival(match, stream, evidence)
        yield match


def _explain_exception(one: Traceback, index: int) -> Match | None:
    text = f"{one.kind}: {one.message}"
    found = [found for found in _asked(text, EXCEPTION) if found[0].role in (ROOT, FACT)]
    consequence = next((row for row in _asked(text, EXCEPTION) if row[0].role == CONSEQUENCE), None)
    if exceptions.is_wrapper(one):
        cause, confidence = "code_exception", 0.3
        role = CONSEQUENCE
        summary = next((row for row in _asked(text, EXCEPTION) if row[0].role == SUMMARY), None)
        if summary:
            return _match(summary, one.line, index, one)
        return Match(cause, confidence, role, one.line, index, traceback=one)
    best = max(found, key=lambda row: row[0].confidence, default=None)
    if consequence and (best is None or best[0].confidence <= consequence[0].confidence):
        return _match(consequence, one.line, index, one)
    cause, confidence = exceptions.explain(one)
    if best is not None and (best[0].confidence >= confidence or cause == "code_exception"):
        match = _match(best, one.line, index, one)
    else:
        match = Match(cause, confidence, ROOT, one.line, index, traceback=one)
    if one.logged:
        match.confidence *= LOGGED
    if not one.whole:
        match.confidence *= 0.97
    if one.inner:
        match.confidence *= 0.99
    return match


def _explain_line(line: Line, index: int) -> Match | None:
    if line.level in ("D", "I"):
        return None
    found = _asked(line.text, PLAIN)
    if line.level == "W" and "NCCL WARN" not in line.text:
        found = [row for row in found if row[0].role in (FACT, CONSEQUENCE)]
    if not found:
        return None
    order = {FACT: 3, ROOT: 2, SUMMARY: 1, CONSEQUENCE: 0}
    best = max(found, key=lambda row: (order[row[0].role] if row[0].confidence > 0.6 else 0, row[0].confidence))
    return _match(best, line, index, None)


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
        if matched and not (rule.unless and rule.unless.search(text)):
            found.append((rule, matched))
    return found


def _match(row: tuple[Rule, re.Match[str]], line: Line, index: int, traceback: Traceback | None) -> Match:
    rule, matched = row
    groups = matched.groupdict()
    rank = int(groups["rank"]) if groups.get("rank") else None
    advice = rule.advice
    for name, value in groups.items():
        advice = advice.replace("{" + name + "}", value or "…")
    if "{" in advice:
        advice = ""
    return Match(
        rule.cause, rule.confidence, rule.role, line, index, 0.0, rule.cls, advice, traceback, rank
    )


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
        yield "host_oom", 0.97, FACT, "the kernel killed a process of the job because memory ran out"
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
        what = f"signal {number}" if evidence.signal is not None or code is None else f"exit code {code}"
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
    if ended_well and not said:
        return ENDED_WELL
    return 1.0


# -- choosing ----------------------------------------------------------------------------------------------------------


def rank_matches(matches: Sequence[Match], evidence: Evidence) -> list[Match]:
    """Best first: the first cause on the time line, then what else it could be."""
    _place_in_time(matches, evidence)
    facts = _by_time(matches, FACT)
    roots = _strong_roots(_by_time(matches, ROOT))
    summaries = sorted(_by_time(matches, SUMMARY), key=lambda match: -match.confidence)
    consequences = _by_time(matches, CONSEQUENCE)
    chosen = _choose(facts, roots, summaries, consequences)
    if chosen is None:
        return []
    rest = [match for match in matches if match is not chosen]
    rest.sort(key=lambda match: -match.confidence)
    return [chosen, *rest]


def _by_time(matches: Sequence[Match], role: str) -> list[Match]:
    return sorted((match for match in matches if match.role == role), key=lambda match: match.order)


def _strong_roots(roots: list[Match]) -> list[Match]:
    """The errors that can be a cause, first in time first; weak ones only where there is nothing else."""
    roots = _without_chains(roots)
    strong = [match for match in roots if match.confidence >= 0.6 and match.cause not in SOFT]
    soft = [match for match in roots if match.confidence >= 0.6 and match.cause in SOFT]
    if strong and soft and soft[0].order < strong[0].order and soft[0].confidence >= 0.8:
        return [soft[0], *strong, *soft[1:]]
    if strong or soft:
        return strong + soft
    return sorted(roots, key=lambda match: -match.confidence)


def _without_chains(roots: list[Match]) -> list[Match]:
    """Of a chain of exceptions the member that says most: the surest, the last of equals."""
    kept: list[Match] = []
    pending: list[Match] = []
    for match in roots:
        pending.append(match)
        if match.traceback is not None and match.traceback.inner:
            continue
        kept.append(max(reversed(pending), key=lambda one: one.confidence))
        pending = []
    if pending:
        kept.append(max(reversed(pending), key=lambda one: one.confidence))
    return kept


def _choose(
    facts: list[Match], roots: list[Match], summaries: list[Match], consequences: list[Match]
) -> Match | None:
    root = roots[0] if roots else None
    if facts:
        fact = max(facts, key=lambda match: match.confidence)
        first = next(match for match in facts if match.cause == fact.cause)
        if not _precedes(root, first):
            return first
        return root
    summary = summaries[0] if summaries else None
    if root is not None:
        if summary is not None and root.cause in SOFT and root.confidence < 0.8:
            return summary if summary.confidence >= 0.6 else root
        if summary is not None and root.confidence < min(0.6, summary.confidence):
            return summary
        return root
    waits = [match for match in consequences if match.cause != "cancelled"]
    if summary is not None:
        earlier = next((match for match in waits if match.order < summary.order), None)
        if earlier is not None and summary.cause in ("segfault_or_abort", "cancelled"):
            # A process that aborts after its watchdog gave up died of the watchdog.
            return _of_waits(waits)
        return summary
    if waits:
        return _of_waits(waits)
    return max(consequences, key=lambda match: match.confidence, default=None)


def _precedes(root: Match | None, fact: Match) -> bool:
    """Whether an error of the program, rather than the outside fact, came first."""
    if root is None or root.confidence < 0.8 or root.order >= fact.order or root.stream != fact.stream:
        return False
    if root.cause in SOFT or root.cause == "cancelled":
        return False
    # The kernel's and the driver's word explains errors that were printed before it.
    return fact.cause in ("walltime", "preempted", "node_lost", "storage_io")


def _of_waits(waits: list[Match]) -> Match:
    first = waits[0]
    best = max(waits, key=lambda match: match.confidence)
    return first if first.confidence >= best.confidence - 0.1 else best


def _place_in_time(matches: Sequence[Match], evidence: Evidence) -> None:
    """One order for all streams: by clock where every stream has one, else each by its own lines."""
    if len(evidence.streams) < 2:
        return
    if all(match.line.time_s is not None for match in matches if match.stream >= 0):
        for match in matches:
            if match.stream >= 0 and match.line.time_s is not None:
                match.order = match.line.time_s + match.line.number * 1e-9


def _distinct(ranked: Sequence[Match]) -> list[Match]:
    seen: dict[str, Match] = {}
    for match in ranked:
        if match.confidence >= 0.2:
            seen.setdefault(match.cause, match)
    return list(seen.values())


# -- telling -----------------------------------------------------------------------------------------------------------


def _finding(match: Match, evidence: Evidence, matches: Sequence[Match]) -> Finding:
    cause = cause_of(match.cause)
    rank, node = _who(match, evidence)
    stream = evidence.streams[match.stream] if match.stream >= 0 else None
    return Finding(
        cause=match.cause,
        cls=match.cls or cause.cls,
        confidence=min(0.99, match.confidence),
        text=_headline(match),
        retry=cause.retry,
        advice=_advice(match, evidence),
        rank=rank,
        task=stream.task if stream else None,
        node=node,
        evidence=list(_evidence_lines(match, evidence, matches)),
    )


def _headline(match: Match) -> str:
    title = cause_of(match.cause).title
    if match.stream < 0:
        return f"{title} ({match.line.text})"
    if match.traceback is not None:
        said = f"{match.traceback.kind}: {match.traceback.message}".rstrip(": ")
        place = _user_place(match.traceback)
        return (f"{said} at {place}" if place else said)[:TEXT_CHARS_MAX]
    return f"{title}: {match.line.text.strip()}"[:TEXT_CHARS_MAX]


def _user_place(one: Traceback) -> str:
    """The innermost line of the program's own files, else of any."""
    for frame in reversed(one.frames):
        path = frame.split(" in ")[0]
        if "-packages/" not in path and "/lib/python" not in path and not path.startswith("<"):
            return path.rsplit("/", 1)[-1]
    return ""


def _advice(match: Match, evidence: Evidence) -> str:
    if match.cause == "host_oom" and evidence.memory_bytes:
        more = -(-evidence.memory_bytes * 3 // (2 << 30))
        return f"--memory {max(1, more)}GiB"
    return match.advice or cause_of(match.cause).advice


def _evidence_lines(
    match: Match, evidence: Evidence, matches: Sequence[Match]
) -> Iterator[dict[str, object]]:
    yield _shown(match, evidence)
    more = [one for one in matches if one is not match and one.cause == match.cause and one.stream >= 0]
    for one in more[: EVIDENCE_MAX - 1]:
        yield _shown(one, evidence)


def _shown(match: Match, evidence: Evidence) -> dict[str, object]:
    name = evidence.streams[match.stream].name if match.stream >= 0 else "exit"
    return {
        "stream": name,
        "offset": match.line.offset if match.stream >= 0 else None,
        "line": match.line.number if match.stream >= 0 else None,
        "text": match.line.raw[:TEXT_CHARS_MAX],
    }


def _who(match: Match, evidence: Evidence) -> tuple[int | None, str | None]:
    """The rank and node that failed first: said by the line, by the launcher, or by the name of the log."""
    node = match.node
    if match.rank is not None:
        return match.rank, node
    if match.stream < 0:
        streams = list(evidence.streams)
    else:
        stream = evidence.streams[match.stream]
        if stream.rank is not None:
            return stream.rank, node
        streams = [stream]
    for stream in streams:
        block = root_block(stream)
        if block is not None and block.rank is not None:
            return block.rank, node or block.host
        said = _said_rank(match, stream)
        if said is not None:
            return said, node
    return None, node


def root_block(stream: Stream) -> _RootBlock | None:
    """torchrun's "Root Cause (first observed failure)"; of several nodes' the one that was not told to stop."""
    blocks: list[_RootBlock] = []
    current: _RootBlock | None = None
    for line in stream.lines:
        if _ROOT_BLOCK.search(line.text):
            current = _RootBlock(number=line.number)
            blocks.append(current)
            continue
        if current is None or line.number > current.number + 12:
            continue
        said = _BLOCK_FIELD.match(line.text)
        if said is None:
            continue
        number = re.match(r"-?\d+", said[2])
        if said[1] == "rank" and number:
            current.rank = int(number[0])
        elif said[1] == "exitcode" and number:
            current.exit_code = int(number[0])
        elif said[1] == "host":
            current.host = said[2].strip() or None
    real = [block for block in blocks if block.exit_code != -15]
    return (real or blocks or [None])[0]


def _said_rank(match: Match, stream: Stream) -> int | None:
    own = _SAYS_RANK.search(match.line.text)
    if own:
        return int(own[1])
    for pattern in (_PROCESS_N, _MPI_RANK, _JSON_LOCAL):
        for line in stream.lines:
            found = pattern.search(line.text)
            if found:
                return int(next(group for group in found.groups() if group is not None))
    for line in stream.lines:
        task = _SRUN_TASK.search(line.text)
        if task:
            return int(task[2])
    return None


def _end_text(evidence: Evidence) -> str:
    if evidence.signal is not None:
        return f"killed by signal {evidence.signal}"
    if evidence.exit_code is not None:
        return f"exited with code {evidence.exit_code}"
    return "how it ended is not known"


def fingerprint_of(evidence: Evidence, matches: Sequence[Match]) -> str | None:
    """The same for failures that look the same: the shape of the last error, else of the last lines."""
    last = next((match for match in reversed(matches) if match.stream >= 0 and match.role == ROOT), None)
    if last is not None:
        text = shape_of(last.line.text)
    else:
        tails = [line.text for stream in evidence.streams for line in stream.lines[-3:] if line.text.strip()]
        text = " | ".join(shape_of(tail) for tail in tails[-3:])
    if not text and evidence.exit_code is None and evidence.signal is None:
        return None
    words = f"{evidence.exit_code} {evidence.signal} {text}"
    return hashlib.sha256(words.encode()).hexdigest()[:12]
