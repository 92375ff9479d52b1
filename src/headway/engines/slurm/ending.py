"""How a job ended that Slurm is done with: by its task folders, and in Slurm's own word. Pure. Called by the engine."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from headway.engines.protocol import Observation
from headway.engines.shelf import TaskView
from headway.engines.slurm.answer import JobLine

SAID_CHARS_MAX: Final = 300
# Slurm's word for an end that the agent could not tell -> (cause, class)
_CAUSES: Final = {
    "NODE_FAIL": ("node_lost", "transient"), "BOOT_FAIL": ("node_lost", "transient"), "REVOKED": ("cancelled", "user"),
    "PREEMPTED": ("preempted", "transient"), "TIMEOUT": ("walltime", "resource"), "DEADLINE": ("walltime", "resource"),
    "OUT_OF_MEMORY": ("host_oom", "resource"), "CANCELLED": ("cancelled", "user"),
    "FAILED": ("launch_failed", "system"),
}  # fmt: skip
NODE_LOST: Final = frozenset(word for word, (cause, _) in _CAUSES.items() if cause == "node_lost")


def of_task(view: TaskView, word: str) -> Observation:
    """A task of a job that Slurm is done with."""
    if not view.begun:
        return Observation("gone", word, {"started": False})
    if view.sending:
        return Observation("ended" if view.ended else "running", f"{word}, still sending", {"started": True})
    if view.ended and not view.unsent:
        return Observation("ended", word, {"started": True, "drained": True})
    return Observation("gone", word, {"started": True, "salvage": True})


def told(line: JobLine, nodes: Sequence[str], user: Callable[[int], str]) -> dict[str, Any]:
    """How Slurm says it ended, for an agent that could not say it any more; `nodes` are those that it is about."""
    word = "PREEMPTED" if line.was_preempted else line.word
    if word not in _CAUSES:
        return {}
    cause, kind = _CAUSES[word]
    by = f" by {user(line.by_uid)}" if line.by_uid is not None else ""
    where = f" on {', '.join(nodes) if line.word in NODE_LOST else line.nodes}" if line.nodes else ""
    text = f"Slurm: {word}{by}{f' ({line.reason})' if line.reason else ''}{where}"
    return {"end": {"cause": cause, "class": kind, "text": text, "nodes": list(nodes)}}


def with_words(end: dict[str, Any], said: str) -> dict[str, Any]:
    """With the last line of the batch script, for an agent that never started."""
    if not said or "end" not in end:
        return end
    return {"end": {**end["end"], "text": f"{end['end']['text']}: {said[:SAID_CHARS_MAX]}"}}
