"""Evidence in, one verdict out: every rule is asked, all ranks are put on one time line, and the first cause is chosen.

Pure. `diagnose` is called by `hw why --logs` and by the server at the end of an attempt.
"""

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from headway.diagnose.causes import cause_of
from headway.diagnose.evidence import Evidence
from headway.diagnose.matching import find_matches
from headway.diagnose.ranks import who_failed
from headway.diagnose.reader import shape_of
from headway.diagnose.rule import CONSEQUENCE, ROOT, Match, Traceback
from headway.diagnose.timeline import distinct, rank_matches
from headway.model.finding import Finding
from headway.model.json_types import JsonObject
from headway.model.limits import GIB

THRESHOLD = 0.5  # below, nothing is said to be known
SURE_MAX = 0.99
FUZZY_MAX = 0.79  # of a cause told by words that other failures use, too
HYPOTHESES_MAX = 3
EVIDENCE_MAX = 4
TEXT_CHARS_MAX = 400
WORDS_CHARS_MAX = 160
CRASH_LINES_MAX = 60  # below a fatal error of Python, in which its stack is looked for
_CRASH_FRAME = re.compile(r' *File "(?P<path>[^"]{1,400})", line (?P<line>\d{1,9}) in ')


@dataclass(slots=True)
class Diagnosis:
    verdict: str
    findings: list[Finding]
    hypotheses: list[Finding]
    fingerprint: str | None = None
    last_words: str = ""  # the last line of its errors, where nothing better is known
    # {count, jobs, came_through}: the same fingerprint in other jobs, where somebody knows them
    seen_before: JsonObject = field(default_factory=dict)

    def as_json(self) -> JsonObject:
        """The form that is kept with an attempt. Bounded: a few findings with a few lines each."""
        return {
            "verdict": self.verdict,
            "findings": [finding.as_json() for finding in self.findings],
            "hypotheses": [finding.as_json() for finding in self.hypotheses],
            "fingerprint": self.fingerprint,
            "last_words": self.last_words,
            "seen_before": self.seen_before,
        }


def diagnose(evidence: Evidence) -> Diagnosis:
    if evidence.succeeded:
        return Diagnosis("nothing is wrong with it, as far as is known", [], [])
    matches = list(find_matches(evidence))
    ranked = rank_matches(matches, evidence)
    fingerprint = fingerprint_of(evidence, matches)
    if not ranked or ranked[0].confidence < THRESHOLD:
        guesses = [
            _finding(match, evidence, matches) for match in distinct(ranked)[:HYPOTHESES_MAX]
        ]
        if not evidence.failed and not guesses:
            return Diagnosis("nothing is wrong with it, as far as is known", [], [])
        if not evidence.failed:
            return Diagnosis("nothing that ends a job was found", [], guesses, fingerprint)
        words = last_words(evidence)
        verdict = f"unknown: {_end_text(evidence)}" + (f"; its last line: {words}" if words else "")
        return Diagnosis(verdict, [], guesses, fingerprint, words)
    best = _finding(ranked[0], evidence, matches)
    others = [
        replace(match, confidence=min(match.confidence, 1.0 - best.confidence))
        for match in distinct(ranked)
        if match.cause != best.cause and match.role != CONSEQUENCE
    ]
    if best.cause == "sigkill_unexplained" and all(match.cause != "host_oom" for match in others):
        others.insert(0, replace(ranked[0], cause="host_oom", confidence=0.4))
    hypotheses = [_finding(match, evidence, matches) for match in others[:HYPOTHESES_MAX]]
    return Diagnosis(best.text, [best], hypotheses, fingerprint)


def _finding(match: Match, evidence: Evidence, matches: Sequence[Match]) -> Finding:
    cause = cause_of(match.cause)
    rank, node = who_failed(match, evidence)
    stream = evidence.streams[match.stream] if match.stream >= 0 else None
    return Finding(
        cause=match.cause,
        cls=match.cls or cause.cls,
        confidence=min(FUZZY_MAX if match.fuzzy else SURE_MAX, match.confidence),
        text=_headline(match, evidence),
        retry=cause.retry.words(),
        advice=_advice(match, evidence),
        rank=rank,
        task=stream.task if stream else None,
        node=node,
        evidence=list(_evidence_lines(match, evidence, matches)),
    )


def _headline(match: Match, evidence: Evidence) -> str:
    title = cause_of(match.cause).title
    if match.stream < 0 and match.traceback is None:
        return f"{title} ({match.line.text})"
    if match.traceback is not None:
        said = f"{match.traceback.kind}: {match.traceback.message}".rstrip(": ")
        place = _user_place(match.traceback)
        return (f"{said} at {place}" if place else said)[:TEXT_CHARS_MAX]
    said = f"{title}: {match.line.text.strip()}"
    place = _crash_place(match, evidence)
    return (f"{said} at {place}" if place else said)[:TEXT_CHARS_MAX]


def _crash_place(match: Match, evidence: Evidence) -> str:
    """Where Python was, by the stack that it prints when it is killed by a signal: `train.py:12`."""
    if match.stream < 0 or "Fatal Python error" not in match.line.text:
        return ""
    lines = evidence.streams[match.stream].lines
    frames = [
        f"{found['path']}:{found['line']}"
        for line in lines
        if 0 < line.number - match.line.number <= CRASH_LINES_MAX
        and (found := _CRASH_FRAME.match(line.text))
    ]
    for frame in frames:
        if "-packages/" not in frame and "/lib/python" not in frame and not frame.startswith("<"):
            return frame.rsplit("/", 1)[-1]
    return ""


def _user_place(one: Traceback) -> str:
    """The innermost line of the program's own files, else of any."""
    for frame in reversed(one.frames):
        path = frame.split(" in ")[0]
        if "-packages/" not in path and "/lib/python" not in path and not path.startswith("<"):
            return path.rsplit("/", 1)[-1]
    return ""


def _advice(match: Match, evidence: Evidence) -> str:
    """The next command, filled in where what it needs is known."""
    advice = match.advice or cause_of(match.cause).advice
    if _crash_place(match, evidence):
        advice = "the whole stack stands below that line in the log"
    if evidence.job is None:
        return advice
    again = f"hw resubmit {evidence.job.rpartition('-')[2]}"
    if match.cause == "host_oom" and evidence.memory_bytes:
        return f"{again} --memory {max(1, math.ceil(evidence.memory_bytes * 1.5 / GIB))}GiB"
    if match.cause == "walltime" and evidence.time_limit_s:
        return f"{again} --max-duration {math.ceil(evidence.time_limit_s * 2)}s"
    if (cause_of(match.cause).retry.tries or 0) > 1:
        return f"{advice}; {again}" if advice else again
    return advice


def _evidence_lines(
    match: Match, evidence: Evidence, matches: Sequence[Match]
) -> Iterator[JsonObject]:
    """The line that says it most plainly first; of equals the earliest."""
    same = [
        one
        for one in matches
        if one.cause == match.cause and one.confidence > 0.3 and one is not match
    ]
    if match.traceback is None or match.confidence < 0.8:
        same = [match, *same]
        same.sort(key=lambda one: (one.stream < 0, -one.confidence))
    else:
        same = [match, *sorted(same, key=lambda one: one.stream < 0)]
    for one in same[:EVIDENCE_MAX]:
        yield _shown(one, evidence)


def _shown(match: Match, evidence: Evidence) -> JsonObject:
    """Where it stands: an offset, and the number of the line where all lines before it were counted."""
    if match.stream < 0:
        name = "exit" if match.traceback is None else "exception"
        return {"stream": name, "offset": None, "line": None, "text": match.line.raw}
    stream = evidence.streams[match.stream]
    counted = stream.skipped_from is None or match.line.offset < stream.skipped_from
    return {
        "stream": stream.name,
        "offset": match.line.offset,
        "line": match.line.number if counted else None,
        "text": match.line.raw[:TEXT_CHARS_MAX],
    }


def last_words(evidence: Evidence) -> str:
    """The last line that it printed as an error: of stderr, or of the only log there is."""
    errors = [stream for stream in evidence.streams if stream.kind == "errors"]
    if not errors and len(evidence.streams) == 1:
        only = evidence.streams[0]
        if not only.name.startswith("stdout"):
            errors = [only]
    for stream in errors:
        printed = [line for line in stream.lines if line.text.strip()]
        if printed and printed[-1].number not in stream.progress:
            return printed[-1].text.strip()[:WORDS_CHARS_MAX]
    return ""


def _end_text(evidence: Evidence) -> str:
    if evidence.signal is not None:
        return f"killed by signal {evidence.signal}"
    if evidence.exit_code is not None:
        return f"exited with code {evidence.exit_code}"
    return "how it ended is not known"


def fingerprint_of(evidence: Evidence, matches: Sequence[Match]) -> str | None:
    """The same for failures that look the same: the shape of the last error, else of the last lines."""
    errors = [match for match in matches if match.stream >= 0 and match.role == ROOT]
    if errors:
        text = shape_of(errors[-1].line.text)
    else:
        tails: list[str] = []
        for stream in evidence.streams:
            tails += [line.text for line in stream.lines[-3:] if line.text.strip()]
        text = " | ".join(shape_of(tail) for tail in tails[-3:])
    if not text and evidence.exit_code is None and evidence.signal is None:
        return None
    words = f"{evidence.exit_code} {evidence.signal} {text}"
    return hashlib.sha256(words.encode()).hexdigest()[:12]
