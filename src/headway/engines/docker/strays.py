"""Containers and networks that nobody waits for any more. Called by `engines/docker/engine.py`.

A container goes with its task. But the engine may refuse to remove it, its program may be killed or
hang, its answer may be lost, and a program that is killed leaves what it ran: so everything that is
made has a label with the home that it is for, and as long as there may be some of it, it is looked
up and what has no task any more is removed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headway.engines.docker.network import HOME_LABEL, Networks
from headway.engines.docker.program import Container, Failed, Program
from headway.model.errors import UnreachableError

TASK_LABEL: Final = "headway.task"
# a container without a task may still be ending, or be a question that is being answered
PATIENCE_S = 30.0
_FORM = (
    '{{.Id}}\t{{.Name}}\t{{.State.Status}}\t{{with index .Config.Labels "'
    + TASK_LABEL
    + '"}}{{.}}{{end}}'
)


@dataclass(frozen=True, slots=True)
class _Found:
    id: str
    name: str
    status: str
    task: str  # empty: it was made to ask what an image has

    @property
    def may_end(self) -> bool:
        """By itself: an agent that has sent everything, or the answer to a question, which is made
        before it runs. What an agent outside has left behind runs until it is ended.
        """
        return self.task == "" or (
            Container(self.status, 0, oom=False).runs and self.task == self.name
        )


class Strays:
    """`is_task`: whether a task of this name is not over yet; `is_attempt`: whether one of this key
    has such tasks.
    """

    def __init__(
        self,
        program: Program,
        home: str,
        is_task: Callable[[str], bool],
        is_attempt: Callable[[str], bool],
    ) -> None:
        self._program, self._home, self._is_task, self._is_attempt = (
            program,
            home,
            is_task,
            is_attempt,
        )
        self._may_be = True  # also what a killed server did not remove
        self._first_s: dict[str, float] = {}  # container -> when it was first seen without a task

    def expect(self) -> None:
        """Something is about to be made."""
        self._may_be = True

    def sweep(self, networks: Networks) -> list[str]:
        """Now and then. The tasks whose containers were removed. An engine that does not answer, or
        refuses, is asked again the next time.
        """
        if not self._may_be:
            return []
        self._may_be = False
        try:
            found = self._find(f"{HOME_LABEL}={self._home}")
            due = [stray for stray in found if self._is_due(stray)]
            ids = {stray.id for stray in found}
            self._first_s = {key: first_s for key, first_s in self._first_s.items() if key in ids}
            self._remove([stray.id for stray in due])
            left = networks.sweep(lambda key: not self._is_attempt(key))
        except (Failed, UnreachableError):
            self._may_be = True
            return []
        if found or left:
            self._may_be = True
        return [stray.task for stray in due if stray.task == stray.name]

    def end(self, task: str) -> bool:
        """Remove all containers of a task that is over, also those that still run. False: to be
        tried again.
        """
        self._may_be = True
        try:
            self._remove([one.id for one in self._find(f"{TASK_LABEL}={task}")])
        except (Failed, UnreachableError):
            return False
        return True

    def _is_due(self, one: _Found) -> bool:
        if one.task and self._is_task(one.task):
            return False
        first_s = self._first_s.setdefault(one.id, time.monotonic())
        return not one.may_end or time.monotonic() - first_s >= PATIENCE_S

    def _find(self, label: str) -> list[_Found]:
        ids = self._program.run(
            "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={label}"
        ).split()
        if not ids:
            return []
        told = self._program.call(
            ["inspect", "--type", "container", "--format", _FORM, *ids]
        ).stdout
        # of one that has gone meanwhile there is none
        rows = [line.split("\t") for line in told.splitlines()]
        return [
            _Found(row[0], row[1].removeprefix("/"), row[2], row[3])
            for row in rows
            if len(row) == 4
        ]

    def _remove(self, ids: list[str]) -> None:
        if ids:
            self._program.run("rm", "--force", *ids)
