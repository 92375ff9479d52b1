"""One verdict of a diagnosis: cause, class, evidence, and what to do next."""

from dataclasses import dataclass, field

from headway.model.json_types import JsonObject


@dataclass(frozen=True, slots=True)
class Finding:
    cause: str  # an id of the failure taxonomy, or one of our own (agent_lost, stopped)
    cls: str  # "user" | "system" | "transient" | "resource" | "unknown"
    text: str  # one line for a person
    rank: int | None = None
    advice: str = ""  # the next command, or what to change
    evidence: list[JsonObject] = field(default_factory=list)  # {stream offset line text}
    confidence: float = 1.0
    task: str | None = None
    node: str | None = None
    retry: str = ""  # whether trying again unchanged is worth it, in words

    def as_cause(self) -> JsonObject:
        """The short form kept with an attempt: `{cause class text rank}`."""
        return {"cause": self.cause, "class": self.cls, "text": self.text, "rank": self.rank}

    def as_json(self) -> JsonObject:
        """As `hw why --json` tells it."""
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
            "retry": self.retry,
        }
