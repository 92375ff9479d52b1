"""The shape of a rule, and of what it finds.

A rule is a row of a table: what a line must contain, what it must not, and what that means. `literals` are
lower-case words of which one must stand in the line: they are looked for first, because that is a hundred times
cheaper than a pattern. `roles` say what a match is worth beside others:

- FACT: somebody outside the program says why (kernel, scheduler, driver). Beats what the program says.
- ROOT: the program's own error. The first of them in time is the cause.
- SUMMARY: how a process ended, said by whoever waited for it. Counts where nothing else is known.
- CONSEQUENCE: what others do when a rank is gone. Counts last.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from headway.diagnose.evidence import Line

FACT, ROOT, SUMMARY, CONSEQUENCE = "fact", "root", "summary", "consequence"

ANY, EXCEPTION, PLAIN = "any", "exception", "plain"


@dataclass(frozen=True, slots=True)
class Rule:
    cause: str
    literals: tuple[str, ...]  # lower case; one of them must be in the line
    pattern: re.Pattern[str]
    confidence: float = 0.9
    role: str = ROOT
    where: str = (
        ANY  # ANY line, only the last line of a traceback (EXCEPTION), only other lines (PLAIN)
    )
    unless: re.Pattern[str] | None = None
    cls: str | None = None  # where it differs from the cause's
    advice: str = ""  # may name groups of the pattern: "pip install {module}"
    fuzzy: bool = False  # words that other failures use, too: right more often than not, never sure


@dataclass(slots=True)
class Traceback:
    """An exception as printed, with what stands around it."""

    kind: str  # as printed: "torch.cuda.OutOfMemoryError"
    message: str
    line: Line
    frames: list[str] = field(default_factory=list)  # "path:line in function", outermost first
    whole: bool = False  # its header was seen
    handled: bool = False  # "Exception ignored in", a logging error: nobody died of it
    logged: bool = False  # printed through a logger; the program may have gone on
    inner: bool = False  # an earlier member of a chain
    last: Line | None = None
    # The lines of source that stand under the frames.
    sources: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        if self.kind.endswith(")"):  # RayTaskError(KeyError)
            return self.kind.rpartition("(")[2][:-1].rsplit(".", 1)[-1]
        return self.kind.rsplit(".", 1)[-1]


@dataclass(slots=True)
class Match:
    """One rule that fits one line."""

    cause: str
    confidence: float
    role: str
    line: Line
    stream: int  # index in the evidence
    order: float = 0.0  # place on the common time line
    cls: str | None = None
    advice: str = ""
    traceback: Traceback | None = None
    rank: int | None = None
    node: str | None = None
    generic: bool = False  # no rule knew it; said by the type of the exception alone
    fuzzy: bool = False  # never shown as sure, whatever it weighs against others


ExceptionRule = Callable[[Traceback], tuple[str, float] | None]


def rule(
    cause: str,
    pattern: str,
    *literals: str,
    confidence: float = 0.9,
    role: str = ROOT,
    where: str = ANY,
    unless: str | None = None,
    cls: str | None = None,
    advice: str = "",
    fuzzy: bool = False,
) -> Rule:
    """A row of a table. Without `literals` the pattern itself is one."""
    if not literals:
        literals = (pattern.lower(),)
        pattern = re.escape(pattern)
    refused = re.compile(unless) if unless else None
    compiled = re.compile(pattern)
    return Rule(cause, literals, compiled, confidence, role, where, refused, cls, advice, fuzzy)
