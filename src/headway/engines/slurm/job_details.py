"""What squeue does not tell of a job: `scontrol show job`, and the accounting where there is one.
Called by the engine.

The controller knows a job for some minutes after its end, the accounting for longer; many clusters
have none, and then it is not asked again for a while.
"""

import pwd
from collections.abc import Callable, Sequence
from typing import Final

from headway.engines.slurm import parse
from headway.engines.slurm.commands import Commands
from headway.engines.slurm.parse import JobLine
from headway.model.errors import HeadwayError, RefusedError, UnreachableError

ONE_BY_ONE_MAX: Final = 3  # more jobs are asked for with one question for all
SACCT_AGAIN_S: Final = 60.0
_FIELDS: Final = "JobID,State,ExitCode,NodeList,Start,Reason,JobName,Comment"
_NO_SUCH_JOB: Final = ("invalid job id", "not found")
_NONE: Final = "No jobs in the system"


class Records:
    def __init__(self, commands: Commands, clock_s: Callable[[], float]) -> None:
        self._commands, self._clock_s = commands, clock_s
        self._no_sacct_s = -SACCT_AGAIN_S  # when the accounting did not answer
        self._cancelled_by: dict[str, int | None] = {}

    def ask(self, ids: Sequence[str]) -> dict[str, JobLine]:
        """All about them, but for those that nobody knows any more. UnreachableError: nothing is
        known.
        """
        found = self._one_by_one(ids) if len(ids) <= ONE_BY_ONE_MAX else self._all()
        gone = [i for i in ids if i not in found]
        return found | (self._account(gone) if gone else {})

    def controller(self, job_id: str) -> JobLine | None:
        """What the controller itself knows of a number. UnreachableError: nothing is known."""
        return self._one_by_one([job_id]).get(job_id)

    def _one_by_one(self, ids: Sequence[str]) -> dict[str, JobLine]:
        found = {}
        for job_id in ids:
            try:
                said = self._commands.run(["scontrol", "show", "job", "-o", job_id])
            except RefusedError as error:
                if not any(words in str(error).lower() for words in _NO_SUCH_JOB):
                    raise UnreachableError(str(error)) from None
                continue  # only this says that it has forgotten the job
            told = parse.read_job(said)
            # from what cannot be read, or tells of another job, nothing follows (F22)
            if told is None or not _is_about(told, job_id):
                raise UnreachableError(f"scontrol answered {said.strip()[:80]!r}")
            found[job_id] = told
        return found

    def _all(self) -> dict[str, JobLine]:
        try:
            said = self._commands.run(["scontrol", "show", "job", "-o"])
        except RefusedError as error:
            raise UnreachableError(str(error)) from None
        found = parse.read_jobs(said)
        if not found and _NONE not in said:
            raise UnreachableError(f"scontrol answered {said.strip()[:80]!r}")
        return found

    def _account(self, ids: Sequence[str]) -> dict[str, JobLine]:
        if self._clock_s() - self._no_sacct_s < SACCT_AGAIN_S:
            return {}
        try:
            said = self._commands.run(
                ["sacct", "-n", "-P", "-X", "-j", ",".join(ids), "-o", _FIELDS]
            )
        except HeadwayError:
            self._no_sacct_s = self._clock_s()
            return {}
        return parse.read_sacct(said)

    def who_cancelled(self, job_id: str) -> int | None:
        """Only the accounting knows; it is asked once."""
        if job_id not in self._cancelled_by:
            told = self._account([job_id]).get(job_id)
            self._cancelled_by[job_id] = told.by_uid if told else None
        return self._cancelled_by[job_id]


def _is_about(told: JobLine, job_id: str) -> bool:
    """Of an element that waits, Slurm tells the array that it is in."""
    whole = job_id.partition("_")[0]
    return bool({told.id, told.number, told.fields.get("ArrayJobId")} & {job_id, whole})


def user(uid: int) -> str:
    """As this machine calls him; on another one the number says it."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
