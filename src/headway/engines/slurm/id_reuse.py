"""Whether a number of Slurm's still means our job. Called by the engine before it believes or ends
anything.

A controller that has lost its state gives numbers out again, to anybody's jobs. Ours is what
carries the key of its attempt: in the comment, or, where somebody has changed that, in the path of
its output. The accounting may keep neither; there the name tells.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath

from headway.engines.slurm import script
from headway.engines.slurm.job_details import Records
from headway.engines.slurm.job_ids import Ledger
from headway.engines.slurm.parse import JobLine
from headway.engines.spool.cluster_folder import TaskView


class Owner:
    def __init__(self, ledger: Ledger, records: Records) -> None:
        self._ledger, self._records = ledger, records
        # id, comment and start of a job -> whether it is another
        self._asked: dict[tuple[str, str, str], bool] = {}

    def is_another(self, job_id: str, line: JobLine) -> bool:
        """UnreachableError: that cannot be told now."""
        key = self._ledger.key_of(job_id)
        if key is None or line.comment in self._ledger.comments(key):
            return False
        if line.comment.startswith(script.comment("")):
            return True
        if line.fields:
            return not self._is_output(key, line.fields.get("StdOut", ""))
        if not line.number:
            return False  # the accounting, which may keep no comments, or our own word
        mark = (job_id, line.comment, line.start or "")
        if mark not in self._asked:
            told = self._records.controller(job_id)
            self._asked[mark] = told is None or not self._is_output(
                key, told.fields.get("StdOut", "")
            )
        return self._asked[mark]

    def _is_output(self, key: str, path: str) -> bool:
        own = {key, *(own for own, _ in self._ledger.places(key))}
        # `_7`, `_%a`: an element's
        return PurePosixPath(path).name.removesuffix(".slurm").partition("_")[0] in own


def has_other_name(line: JobLine, views: Mapping[str, TaskView]) -> bool:
    """Whether the accounting tells of another job, by the name that each has."""
    if line.comment or line.fields or not line.name:
        return False
    jobs = {view.job for view in views.values() if view.job}
    names = {script.safe_name(name) for job in jobs for name in (job, job.rpartition("-")[0])}
    return bool(jobs) and line.name not in names
