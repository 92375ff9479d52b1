"""One verdict of a diagnosis: cause, class, evidence, and what to do next."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    cause: str  # an id of the failure taxonomy, or one of our own (agent_lost, stopped)
    cls: str  # "user" | "system" | "transient" | "resource" | "unknown"
    text: str  # one line for a person
    rank: int | None = None
    advice: str = ""
    evidence: list[dict[str, Any]] = field(default_factory=list)

    def as_cause(self) -> dict[str, Any]:
        """The short form kept with an attempt: `{cause class text rank}`."""
        return {"cause": self.cause, "class": self.cls, "text": self.text, "rank": self.rank}
