"""`hw logs ARRAY`: what the jobs of an array wrote, one job after the other, or with -f as it
comes. Called by `logs`.

In front of each line stand the job and its number in the array, then the rank: `12:04:31  7f3c2 [3]
0 │ step 100`.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from headway.model.errors import UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import JOBS_LISTED_MAX
from headway.views.api.follow import Follow
from headway.views.api.source import Source, job_route
from headway.views.cli import arrays, log_records
from headway.views.cli.dispatch import Call
from headway.views.cli.output import JsonLines, Merged
from headway.views.text import format as fmt

Job = JsonObject
# between two looks: while something comes, and while nothing does
_PAUSE_S, _PAUSE_MAX_S = 0.2, 1.0
_OF_ONE_JOB: Final = ("attempt", "bytes")


def show(call: Call, source: Source, array: Job) -> None:
    for name in _OF_ONE_JOB:
        if call.get(name) is not None:
            raise UsageError(
                f"--{name} is for one job, and {array['id']} is an array of {array['jobs']}",
                f"to see its jobs: hw ls --array {fmt.suffix(array['id'])}",
            )
    logs = _Logs(call, Follow(source, str(array["id"])), array)
    if array["started_at"] is None:
        hint = "" if call.get("follow") else "; -f waits for it"
        call.terminal.say(
            call.terminal.err.safe(
                f"hw: {array['id']} has not started: {arrays.counts(array)}{hint}"
            )
        )
    if call.as_json and not call.get("follow"):
        call.terminal.put_json(
            {logs.kind: [line for job in logs.begun() for line in logs.of(job)], "more": False}
        )
        return
    out = call.terminal.out
    fold = call.get("grep") is None
    sink = JsonLines(out) if call.as_json else Merged(out, out, ranks=1, fold=fold)
    logs.follow(sink) if call.get("follow") else logs.write(sink, logs.begun())
    sink.finish()


class _Logs:
    """`kind` is what the server calls it: lines of output, or records of `logging`."""

    def __init__(self, call: Call, server: Follow, array: Job) -> None:
        self.call, self.server, self.array = call, server, array
        self.kind = "records" if call.get("stream") == "log" else "lines"
        self._at: JsonObject = {}  # job → where to go on
        self._wide = 1  # cells of the longest number of a job

    def begun(self) -> list[Job]:
        """Its jobs that have started, in their order."""
        return [job for job in self._jobs() if job.get("elapsed_s") is not None]

    def follow(self, sink: Merged | JsonLines) -> None:
        """Until the last of them is over. A job is left alone once all of it was read after its
        end.
        """
        over: set[str] = set()
        pause_s = _PAUSE_S
        while True:
            jobs = self._jobs()
            came = self.write(
                sink,
                [job for job in jobs if job.get("elapsed_s") is not None and job["id"] not in over],
            )
            over = {job["id"] for job in jobs if fmt.is_over(job)}
            if len(over) == len(jobs):
                return
            pause_s = _PAUSE_S if came else min(pause_s * 2, _PAUSE_MAX_S)
            time.sleep(pause_s)

    def write(self, sink: Merged | JsonLines, jobs: list[Job]) -> bool:
        """All that is new of these; whether there was anything."""
        came = False
        for job in jobs:
            for lines in _some(self.of(job)):
                came = True
                sink.take({"lines": lines if isinstance(sink, JsonLines) else self._shown(lines)})
                if sink.closed:
                    raise BrokenPipeError
        return came

    def of(self, job: Job) -> Iterator[Job]:
        """What is new of one job, each line with whose it is."""
        more, job_id = True, str(job["id"])
        while more:
            page = self.server.ask(partial(self._page, job_id))
            for line in page[self.kind]:
                yield {"job": job_id, "index": job.get("array_index"), **line}
            place = page["after"] if self.kind == "records" else page["cursor"]
            more, self._at[job_id] = bool(page.get("more")) and place != self._at.get(job_id), place
            if page.get("timed_out"):
                self.call.terminal.say(
                    f"hw: the search of {job_id} took too long and was stopped: lines may be missing"
                )

    def _page(self, job_id: str, source: Source) -> Any:
        at, known = self._at.get(job_id), job_id in self._at
        names = (
            ("level", "rank", "grep")
            if self.kind == "records"
            else ("rank", "task", "stream", "grep")
        )
        query = [(name, self.call.get(name)) for name in names]
        query += (
            [("after" if self.kind == "records" else "cursor", at)]
            if known
            else [("tail", self.call.get("tail"))]
        )
        return source.get(job_route(job_id, "logs" if self.kind == "lines" else "records"), query)

    def _jobs(self) -> list[Job]:
        query = [("array", self.array["uuid"]), ("brief", "true"), ("limit", JOBS_LISTED_MAX)]
        found: list[Job] = self.server.ask(lambda source: source.get("/api/jobs", query))
        self._wide = max((len(str(job.get("array_index"))) for job in found), default=1)
        return sorted(found, key=lambda job: job.get("array_index") or 0)

    def _shown(self, lines: list[Job]) -> list[Job]:
        split: Callable[[Job], list[Job]] = (
            log_records.lines if self.kind == "records" else lambda line: [line]
        )
        return [
            {
                **part,
                "rank": None,
                "task": f"{fmt.suffix(line['job'])} [{line['index']:>{self._wide}}]  {_who(line)}",
            }
            for line in lines
            for part in split(line)
        ]


def _who(line: Job) -> str:
    return str(line["rank"]) if line.get("rank") is not None else str(line.get("task") or "agent")


def _some(lines: Iterator[Job], count: int = 1_000) -> Iterator[list[Job]]:
    batch: list[Job] = []
    for line in lines:
        batch.append(line)
        if len(batch) == count:
            yield batch
            batch = []
    if batch:
        yield batch
