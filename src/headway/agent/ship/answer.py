"""What the server's answer to a batch means, and in which words trouble is told. Pure. Called by
the shipper.
"""

from __future__ import annotations

import json

from headway.agent.ship.events import Acked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.agent.transport.http import Answer


def read_acks(answer: "Answer", number: int) -> Acked | None:
    """None: the batch did not get through; `reason_of` says why."""
    if answer.status != 200:
        return None
    try:
        body = json.loads(answer.body)
        acks = {str(name): int(position) for name, position in body["acks"].items()}
        refused = {str(name): str(reason) for name, reason in (body.get("refused") or {}).items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return Acked(number, acks, refused)


def reason_of(answer: "Answer") -> str:
    """Why data stays in the spool."""
    if answer.status is None:
        return answer.reason
    if answer.status in (401, 403):
        return f"the server does not accept this task's token ({answer.status})"
    if answer.status == 404:
        return "the server does not know this task (404)"
    if answer.status == 200:
        return "the server's answer cannot be read"
    try:
        said = json.loads(answer.body)["error"]["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        said = "no reason given"
    return f"the server answered {answer.status}: {str(said)[:200]}"
