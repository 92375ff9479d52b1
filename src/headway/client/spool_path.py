"""Where this process writes: the spool of the task it belongs to. Called by client/run.py when it
is needed first.

Under `hw run` the environment says it. Otherwise client/attach.py makes a job of the process.
"""

from __future__ import annotations

import os

from headway.client.own_rank import ranks

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping


class Place:
    """A task's spool, and who we are in that task."""

    __slots__ = ("attached", "local_rank", "rank", "task_dir", "world_size")

    def __init__(self, task_dir: str, environ: "Mapping[str, str]", *, attached: bool) -> None:
        self.task_dir, self.attached = task_dir, attached
        self.rank, self.local_rank, self.world_size = ranks(environ)


def from_environment(environ: "Mapping[str, str]") -> Place | None:
    """The task that we were started in; None when there is none (a variable left over from a task
    that is gone).
    """
    task_dir = environ.get("HEADWAY_SPOOL", "")
    if not task_dir or not os.path.isfile(os.path.join(task_dir, "task.json")):
        return None
    return Place(task_dir, environ, attached=False)
