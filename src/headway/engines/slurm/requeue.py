"""Whether Slurm has taken a start back: it lost it, or put the job back into its queue. Pure.
Called by the engine.

A controller writes down what it knows every few seconds. One that is killed right after it has
started a job comes back with that job in its queue: its nodes end what runs, it starts the job a
second time, and calls that CANCELLED, FAILED or RUNNING, as chance will have it. So its word says
nothing; the times do. An agent that began before the start that Slurm tells of belongs to an
earlier one, which Slurm has lost.

Slurm's times are those of the controller's clock, the files' those of the file system, and either
may be hours off (F26). So only spans are compared, from the submission on, each of one clock.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from headway.engines.slurm.parse import JobLine
from headway.engines.spool.cluster_folder import TaskView
from headway.model.json_types import JsonObject

# both of Slurm's times are whole seconds, and so are a file's on some file systems
MARGIN_S: Final = 3.0
CLOCK_CHANGE_S: Final = 3600.0  # by which local times jump twice a year; Slurm prints no zone
SLOW_S: Final = 300.0  # that an agent may take to begin
LOST: Final = "Slurm's controller has lost that it had started it"
REQUEUED: Final = "Slurm has put it back into its queue"


def end_of(line: JobLine, begun: bool, views: Iterable[TaskView]) -> JsonObject:
    """Why it is over, whatever Slurm means to do with it: nothing where it is not. `begun`: an
    agent of it was seen. A task begins once, so another attempt follows, which nobody has to ask
    for.
    """
    every = list(views)
    with_agent = [view for view in every if view.begun]
    if with_agent:
        begun = True
    if begun and line.fields.get("Restarts", "0") not in ("", "0"):
        return _end("preempted", line, REQUEUED)
    if begun and line.word == "PENDING":
        return _end("start_lost", line, LOST)
    # what a script printed counts where no agent came of it
    for view in with_agent or every:
        if is_lost(line.fields.get("SubmitTime"), line.start, view.made_s, view.sign_s):
            return _end("start_lost", line, LOST)
    return {}


def is_back(line: JobLine, begun: bool) -> bool:
    """Whether it waits although it has begun: to be looked at more closely."""
    return begun and line.word == "PENDING"


def _end(cause: str, line: JobLine, why: str) -> JsonObject:
    return {
        "end": {
            "cause": cause,
            "class": "transient",
            "text": f"{why} (now {line.word})",
            "nodes": [],
        }
    }


def is_lost(submit: str | None, start: str | None, made_s: float, sign_s: float) -> bool:
    """`submit` and `start` as Slurm tells them; when the task's folder was made, which is just
    before it was submitted, and the first sign in it of a start. 0: none.
    """
    if submit is None or start is None or not made_s or sign_s < made_s:
        return False
    try:
        waited_s = (datetime.fromisoformat(start) - datetime.fromisoformat(submit)).total_seconds()
    except (TypeError, ValueError):  # `Unknown`, or one has a zone and the other has none
        return False
    early_s = waited_s - (sign_s - made_s)
    changed = CLOCK_CHANGE_S - SLOW_S < early_s < CLOCK_CHANGE_S + MARGIN_S
    return early_s > MARGIN_S and not changed
