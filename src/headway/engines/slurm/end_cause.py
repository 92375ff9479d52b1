"""How a job ended that Slurm is done with: by its task folders, and in Slurm's own word. Pure.
Called by the engine.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from headway.engines.protocol import Observation
from headway.engines.slurm.parse import JobLine, read_tres
from headway.engines.spool.cluster_folder import MEMORY, TaskView
from headway.model.json_types import JsonObject
from headway.model.limits import MIB, TAKEN_KEEP_S
from headway.settings.quantity import size_text

SAID_CHARS_MAX: Final = 300
_FIGURES: Final = re.compile(r"memory limit \(([0-9]{1,18}) > ([0-9]{1,18})\)")
# Slurm's word for an end that the agent could not tell -> (cause, class)
_CAUSES: Final = {
    "NODE_FAIL": ("node_lost", "transient"), "BOOT_FAIL": ("node_lost", "transient"), "REVOKED": ("cancelled", "user"),
    "PREEMPTED": ("preempted", "transient"), "TIMEOUT": ("walltime", "resource"), "DEADLINE": ("walltime", "resource"),
    "OUT_OF_MEMORY": ("host_oom", "resource"), "CANCELLED": ("cancelled", "user"),
    "FAILED": ("launch_failed", "system"),
}  # fmt: skip
NODE_LOST: Final = frozenset(word for word, (cause, _) in _CAUSES.items() if cause == "node_lost")
# Of one that had begun: what its agent says is believed, and this stands beside it.
FORGOTTEN: Final[JsonObject] = {
    "cause": "launch_failed", "class": "system", "nodes": [],
    "text": "no longer known to Slurm, whose nodes end what their controller does not know",
}  # fmt: skip


def of_task(
    view: TaskView, word: str, quiet_s: float = math.inf, limit_s: float = 0.0
) -> Observation:
    """A task of a job that Slurm is done with. `quiet_s`: without a sign of life of its agent; one
    on another machine, where a lock that seems free proves nothing, counts as dead after `limit_s`
    of that (F33).
    """
    if not view.begun:
        return Observation("gone", word, {"started": False})
    if view.claimed and view.sending:
        return _doubtful(view, f"{word}, asking whether its agent still lives")
    if view.sending:
        return Observation(
            "ended" if view.ended else "running", f"{word}, still sending", {"started": True}
        )
    if view.ended and not view.unsent:
        if view.taken and quiet_s < TAKEN_KEEP_S:
            return _doubtful(view, f"{word}, taken over: more may come")
        return Observation("ended", word, {"started": True, "drained": True})
    if view.elsewhere and quiet_s < limit_s:
        return _doubtful(view, f"{word}, and its agent may still live")
    silence = {"silence_s": limit_s} if view.elsewhere else {}
    return Observation("gone", word, {"started": True, "salvage": True, **silence})


def _doubtful(view: TaskView, word: str) -> Observation:
    return Observation("ended" if view.ended else "unknown", word, {"started": True})


class Silence:
    """Since when a task has shown no sign of life, by our own clock: those of other machines may be
    off (F26).
    """

    def __init__(self) -> None:
        # name of the folder -> its mark, and since when it is that
        self._known: dict[str, tuple[str, float]] = {}

    def quiet_s(self, name: str, view: TaskView, now_s: float) -> float:
        if self._known.get(name, ("", 0.0))[0] != view.mark:
            self._known[name] = (view.mark, now_s)
        return now_s - self._known[name][1]

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._known.pop(name, None)


def told(line: JobLine, nodes: Sequence[str], user: Callable[[int], str]) -> JsonObject:
    """How Slurm says it ended, for an agent that could not say it any more; `nodes` are those that
    it is about.
    """
    word = "PREEMPTED" if line.was_preempted else line.word
    if word not in _CAUSES:
        return {}
    cause, kind = _CAUSES[word]
    by = f" by {user(line.by_uid)}" if line.by_uid is not None else ""
    where = (
        f" on {', '.join(nodes) if line.word in NODE_LOST else line.nodes}" if line.nodes else ""
    )
    text = f"Slurm: {word}{by}{f' ({line.reason})' if line.reason else ''}{where}"
    end: JsonObject = {"cause": cause, "class": kind, "text": text, "nodes": list(nodes)}
    return {"end": {**end, **_asked(line)} if cause == "host_oom" else end}


def _asked(line: JobLine) -> dict[str, int]:
    """How much memory it had asked for, or was given by the cluster's own rule."""
    memory_mib = read_tres(line.fields.get("ReqTRES") or line.fields.get("TRES", "")).get("mem")
    return {"memory_bytes": int(memory_mib * MIB)} if memory_mib else {}


def was_killed(line: JobLine) -> bool:
    """By SIGKILL, which Slurm's own watch over memory sends: no word of its state tells that."""
    return line.word != "OUT_OF_MEMORY" and (line.signal == 9 or line.exit_code == 128 + 9)


def of_memory(end: JsonObject, said: str, line: JobLine) -> JsonObject:
    """With the cause, where the output of the batch script tells that memory ran out."""
    if not MEMORY.search(said):
        return end
    figures = _FIGURES.search(said)
    used = f" ({size_text(int(figures[1]))} of {size_text(int(figures[2]))})" if figures else ""
    text = f"Slurm: {line.word}{f' on {line.nodes}' if line.nodes else ''}, killed because memory ran out{used}"
    nodes = (end.get("end") or {}).get("nodes") or []
    return {
        "end": {
            "cause": "host_oom",
            "class": "resource",
            "text": text,
            "nodes": nodes,
            **_asked(line),
        }
    }


def with_words(end: JsonObject, said: str) -> JsonObject:
    """With the last line of the batch script, for an agent that never started."""
    if not said or "end" not in end:
        return end
    return {"end": {**end["end"], "text": f"{end['end']['text']}: {said[:SAID_CHARS_MAX]}"}}
