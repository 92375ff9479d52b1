"""Whether a failed attempt is followed by another one. Pure: no clock, no I/O; chance is an
argument.

`decide_retry` is called by `server/control/reconcile.py`. The table is the column `retry` of
`diagnose/causes.py`, from which `hw why` reads, too; the table of `docs/concepts/retries.md` is tested against it.
`docs/decisions/011-retries.md` says why nothing that a program did itself is run again unless a
person, or the program, asked for it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headway.diagnose.causes import AGAIN, AS_ASKED, CAUSES, OTHER_NODE, WHEN_ROOM, Policy
from headway.model.finding import Finding
from headway.model.job import Attempt, Retry, count_retries
from headway.model.json_types import JsonObject

__all__ = [
    "AGAIN",
    "NO",
    "OTHER_NODE",
    "POLICIES",
    "WHEN_ROOM",
    "Decision",
    "Policy",
    "decide_retry",
    "refusal_words",
]

NO: Final = "no"

POLICIES: Final[dict[str, Policy]] = {name: cause.retry for name, cause in CAUSES.items()}
# On another node if there is one; on the same node it gets other ports, which may be all that it
# needs.
_ALSO_HERE: Final = frozenset(
    {"declared_conflict", "node_lost", "collective_stall", "nonfinite_loss"}
)


@dataclass(frozen=True, slots=True)
class Decision:
    do: str  # AGAIN | OTHER_NODE | WHEN_ROOM | NO
    counted: bool = False
    text: str = ""  # why, or why not, for a person
    wait_s: float = 0.0
    rule: str = ""  # where it is not the table of causes

    def as_json(self, now_ns: int) -> JsonObject:
        """The form that is kept with the attempt."""
        kept = {
            "do": self.do,
            "counted": self.counted,
            "text": self.text,
            "wait_s": round(self.wait_s, 3),
        }
        if self.rule:
            kept["rule"] = self.rule
        return {**kept, "not_before_ns": now_ns + int(self.wait_s * 1e9)}


def decide_retry(
    finding: Finding,
    attempts: Sequence[Attempt],
    retry: Retry,
    *,
    chance: float = 0.5,
    other_nodes: Collection[str] | None = None,
    reached: Mapping[int, int] | None = None,
) -> Decision:
    """What follows the failure of the last of `attempts`. `other_nodes`: those without a bad word;
    None: not known. `reached`: the last step that each attempt logged, by its number.
    """
    policy = POLICIES.get(finding.cause, AS_ASKED)
    if retry.on == "any" and policy.tries == 0:
        policy = AS_ASKED  # the person wants it again, whatever we think of the cause
    since = _since_progress(attempts, reached or {}) if policy.resets else attempts
    total, (row, counted) = count_retries(attempts)[0], count_retries(since)
    same = sum(1 for a in since[:-1] if (a.cause or {}).get("cause") == finding.cause)
    refusal = _refusal(finding, policy, retry, total, counted, same)
    if refusal:
        return Decision(NO, text=refusal)
    do = policy.do
    if do == OTHER_NODE and other_nodes is not None and not other_nodes:
        if finding.cause not in _ALSO_HERE:
            return Decision(NO, text="it needs another node, and there is none")
        do = AGAIN
    allowed = retry.max if policy.counted else retry.total_max
    number = counted + 1 if policy.counted else total + 1
    if not policy.counted and policy.tries is not None:
        # of one cause the table allows fewer than there may be in all
        number, allowed = same + 1, min(policy.tries, allowed)
    what = "retry" if policy.counted else "uncounted retry"
    anew = "" if len(since) == len(attempts) else ", counted anew since it came further"
    return Decision(
        do, policy.counted, f"{what} {number} of {allowed}{anew}", backoff_s(retry, row, chance)
    )


def refusal_words(decision: Decision, attempts: Sequence[Attempt], retry: Retry) -> str:
    """One line for a person who had asked for retries and gets none now: why. Empty for all others."""
    taken = count_retries(attempts)[0]
    if decision.do != NO or not decision.text or (retry.max == 0 and not taken):
        return ""
    if taken:
        return f"no further retry: {decision.text}"
    asked = "the retry" if retry.max == 1 else f"none of the {retry.max} retries"
    return f"{asked} asked for was {'not ' if retry.max == 1 else ''}made: {decision.text}"


def _since_progress(attempts: Sequence[Attempt], reached: Mapping[int, int]) -> Sequence[Attempt]:
    """From the last attempt that came further than all before it; what it failed of is another
    hurdle.
    """
    first, furthest = 0, None
    for index, attempt in enumerate(attempts):
        step = reached.get(attempt.number)
        if step is not None and (furthest is None or step > furthest):
            first, furthest = index if furthest is not None else 0, step
    return attempts[first:]


def _refusal(
    finding: Finding, policy: Policy, retry: Retry, total: int, counted: int, same: int
) -> str:
    if policy.tries == 0:
        return f"{finding.cause} would come again"
    if policy.counted and retry.max == 0:
        return "no retry was asked for"
    if policy.counted and counted >= retry.max:
        return f"tried again {counted} of {retry.max} times"
    if policy.tries is not None and same >= policy.tries:
        return f"{finding.cause} came {same + 1} times"
    if total >= retry.total_max:
        return f"tried again {total} times in all"
    return ""


def backoff_s(retry: Retry, total: int, chance: float) -> float:
    """Twice as long each time, up to a limit; half of it by chance, so that many jobs do not come
    back at once.
    """
    full_s = min(retry.backoff_max_s, retry.backoff_s * 2.0 ** min(total, 30))
    return full_s * (0.5 + 0.5 * chance)
