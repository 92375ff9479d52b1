"""The first cause: all matches on one time line, and the choice between them."""

from collections.abc import Sequence

from headway.diagnose.evidence import Evidence
from headway.diagnose.rule import CONSEQUENCE, FACT, ROOT, SUMMARY, Match

# Errors that a rank shows when another one, or its node, is gone.
SOFT = frozenset(
    {
        "remote_service",
        "rendezvous",
        "collective_cascade",
        "collective_stall",
        "storage_io",
        "fabric_network",
    }
)

VAGUE = 0.8
MESSAGE_LINES = 12  # of an exception, behind its first


def rank_matches(matches: Sequence[Match], evidence: Evidence) -> list[Match]:
    """Best first: the first cause on the time line, then what else it could be."""
    _place_in_time(matches, evidence)
    facts = _by_time(matches, FACT)
    roots = _strong_roots(_by_time(matches, ROOT))
    if (
        matches
        and roots
        and roots[0].confidence < 0.4
        and any(one.confidence > 0.6 for one in matches)
    ):
        roots = []
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
    roots = _without_vague(_without_chains(roots))
    likely = [match for match in roots if match.confidence >= 0.6]
    if not likely:
        return sorted(roots, key=lambda match: -match.confidence)

    strong = [match for match in likely if match.cause not in SOFT]
    soft = [match for match in likely if match.cause in SOFT]
    if strong and soft:
        first = soft[0]
        if first.order < strong[0].order and first.confidence >= 0.8:
            return [first, *strong, *soft[1:]]
    return strong + soft


def _without_vague(roots: list[Match]) -> list[Match]:
    """An exception that says little by its first line ("Graph execution error:") is explained by the
    lines of its message that follow.
    """
    kept = []
    for match in roots:
        vague = match.generic and match.confidence < VAGUE
        explained = vague and any(
            one.stream == match.stream
            and 0 < one.line.number - match.line.number <= MESSAGE_LINES
            and not one.generic
            and one.traceback is None
            and one.confidence >= 0.7
            for one in roots
        )
        if not explained and not _is_refused(match, roots):
            kept.append(match)
    return kept


def _is_refused(match: Match, roots: list[Match]) -> bool:
    """A service "could not be reached" whose answer, a line further on, was a refusal."""
    return match.cause == "remote_service" and any(
        one.cause == "permission_or_credentials"
        and one.stream == match.stream
        and 0 < one.line.number - match.line.number <= MESSAGE_LINES
        and one.confidence >= VAGUE
        for one in roots
    )


def _without_chains(roots: list[Match]) -> list[Match]:
    """Of a chain of exceptions the member that says most: the surest, the first of equals."""
    kept: list[Match] = []
    pending: list[Match] = []
    for match in roots:
        pending.append(match)
        if match.traceback is not None and match.traceback.inner:
            continue
        kept.append(max(pending, key=_says))
        pending = []
    if pending:
        kept.append(max(pending, key=_says))
    return kept


def _says(match: Match) -> float:
    """How much a member of a chain says: a type alone less than words that are known."""
    return match.confidence - (0.2 if match.generic else 0.0)


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
    waits = [match for match in consequences if match.cause in SOFT]
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
    if (
        root is None
        or root.confidence < 0.8
        or root.order >= fact.order
        or root.stream != fact.stream
    ):
        return False
    if root.cause in SOFT or root.cause in ("cancelled", "cuda_fault", "segfault_or_abort"):
        return False
    # The kernel's and the driver's word explains errors that were printed before it.
    return fact.cause in ("walltime", "preempted", "node_lost", "storage_io")


def _of_waits(waits: list[Match]) -> Match:
    first = waits[0]
    best = max(waits, key=lambda match: match.confidence)
    return first if first.confidence >= best.confidence - 0.1 else best


def _place_in_time(matches: Sequence[Match], evidence: Evidence) -> None:
    """One order for all streams: by clock where every stream has one, else each by its own lines."""
    timed = [match for match in matches if match.stream >= 0 or match.traceback is not None]
    if len(evidence.streams) < 2 or any(match.line.time_s is None for match in timed):
        return
    for match in timed:
        match.order = (match.line.time_s or 0.0) + match.line.number * 1e-9


def distinct(ranked: Sequence[Match]) -> list[Match]:
    seen: dict[str, Match] = {}
    for match in ranked:
        if match.confidence >= 0.2:
            seen.setdefault(match.cause, match)
    return list(seen.values())
