"""Jobs from Python: `hw.jobs`, `hw.job`, `hw.submit`. For notebooks and scripts that look at jobs or
start them; over the same routes as the command line.

Unlike `hw.log` and its like these calls may fail, and then raise a HeadwayError that says what to do.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headway.model.errors import NotFoundError, UsageError
from headway.model.json_types import JsonMapping, JsonObject
from headway.views.api.source import Source, job_route

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

_ENDED: Final = ("succeeded", "failed", "stopped")
_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_POLL_FIRST_S: Final = 0.1
_POLL_MAX_S: Final = 2.0


class Series(NamedTuple):
    """One metric of one rank: arrays of equal length."""

    name: str
    rank: int
    step: "np.ndarray[Any, Any]"
    value: "np.ndarray[Any, Any]"
    time: "np.ndarray[Any, Any]"  # UTC, numpy's datetime64[us]

    def to_pandas(self) -> Any:
        """Columns step, time and the metric's name. Needs pandas."""
        pandas = import_module("pandas")
        return pandas.DataFrame({"step": self.step, "time": self.time, self.name: self.value})

    def to_polars(self) -> Any:
        """Columns step, time and the metric's name. Needs polars."""
        polars = import_module("polars")
        return polars.DataFrame({"step": self.step, "time": self.time, self.name: self.value})


class Job:
    """A job, by its id. `state`, `metrics()` and the like ask the server; the rest is what was known
    when this object was made, or `refresh` was called last.
    """

    def __init__(self, data: JsonObject) -> None:
        self._data = data

    def __repr__(self) -> str:
        return f"<headway.Job {self.id} {self._data.get('state')}>"

    @property
    def id(self) -> str:
        return str(self._data["id"])

    @property
    def name(self) -> str:
        return str(self._data["name"])

    @property
    def state(self) -> str:
        """As it is now: waiting, running, stopping, succeeded, failed, stopped, held or unknown."""
        return str(self.refresh()._data["state"])

    @property
    def config(self) -> JsonObject:
        """What the program has said with `hw.init(config=…)` or `hw.config`."""
        if "config" not in self._data:
            self.refresh()
        return dict(self._data.get("config") or {})

    @property
    def parameters(self) -> JsonObject:
        """Of a job file or a sweep."""
        return dict(self._data.get("parameters") or {})

    @property
    def tags(self) -> list[str]:
        return list(self._data.get("tags") or [])

    @property
    def summary(self) -> JsonObject:
        """The last value of each metric."""
        found = self._data.get("metrics") or {}
        return {name: _number(value) for name, value in found.items()}

    @property
    def data(self) -> JsonObject:
        """The whole job object, as `hw q ID --json` prints it."""
        if "attempts" not in self._data:
            self.refresh()
        return self._data

    def refresh(self) -> "Job":
        """Ask the server anew."""
        with _source() as source:
            self._data = source.get(job_route(self.id))
        return self

    def metrics(self, name: str, rank: int | None = None, points: int | None = None) -> Series:
        """One metric as arrays; of the lowest rank, or of `rank`. Attempts are one series, in
        which steps that were done again replace the lost ones. With `points`: about so many,
        extremes kept.
        """
        query = [("name", [name]), ("rank", rank), ("points", points), ("joined", "true")]
        with _source() as source:
            answer = source.get(job_route(self.id, "metrics"), query)
        by_name: JsonObject = next(iter(answer.values()), {})
        found = by_name.get(name) or []
        if not found:
            known = ", ".join(sorted(self._data.get("metrics") or {})[:10])
            raise NotFoundError(
                f'{self.id} has no metric "{name}"', f"it has: {known}" if known else ""
            )
        return _series(name, min(found, key=lambda one: int(one["rank"])))

    def logs(
        self, rank: int | None = None, stream: str | None = None, tail: int | None = None
    ) -> str:
        """What it wrote: all ranks merged by time, or one rank or stream; with `tail` the last
        lines only.
        """
        query: list[tuple[str, object]] = [("rank", rank), ("stream", stream), ("tail", tail)]
        lines: list[str] = []
        cursor: str | None = None
        with _source() as source:
            while True:
                asked = (
                    [*query, ("cursor", cursor)]
                    if cursor is None
                    else [*query[:2], ("cursor", cursor)]
                )
                answer = source.get(job_route(self.id, "logs"), asked)
                lines += [str(line.get("text", "")) for line in answer.get("lines") or []]
                cursor = answer.get("cursor")
                if not answer.get("more"):
                    return "".join(f"{line}\n" for line in lines)

    def usage(self) -> JsonObject:
        """Samples of CPU, memory, disks and GPUs, as `hw usage ID --json` prints them."""
        from headway.views.cli.usage import fetch

        with _source() as source:
            return dict(fetch(source, self.id))

    def why(self) -> JsonObject:
        """Why it waits, or what it ended of: `{verdict, findings, …}`, as `hw why ID --json`."""
        with _source() as source:
            return dict(source.get(job_route(self.id, "why")))

    def wait(self, timeout_s: float | None = None) -> "Job":
        """Until it has ended. Raises TimeoutError after `timeout_s`."""
        until_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        pause_s = _POLL_FIRST_S
        while not self._is_over():
            if time.monotonic() >= until_s:
                raise TimeoutError(f"{self.id} is {self._data['state']} after {timeout_s:g} s")
            time.sleep(min(pause_s, max(until_s - time.monotonic(), 0.0)))
            pause_s = min(pause_s * 1.5, _POLL_MAX_S)
            self.refresh()
        return self

    def abort(self) -> "Job":
        """Stop it: SIGTERM, and SIGKILL after its grace time."""
        with _source() as source:
            self._data = source.ask(self.id, "abort")
        return self

    def _is_over(self) -> bool:
        return self._data.get("state") in _ENDED or bool(self._data.get("ended_at"))


class Jobs(list[Job]):
    """A list of jobs, newest first, that becomes a table."""

    def rows(self) -> list[JsonObject]:
        """A dictionary for each job: id, name, state, times, then config and last values."""
        return [_row(job) for job in self]

    def to_pandas(self) -> Any:
        """A row for each job, with its config and last values. Needs pandas."""
        pandas = import_module("pandas")
        return pandas.DataFrame(self.rows())

    def to_polars(self) -> Any:
        """A row for each job, with its config and last values. Needs polars."""
        polars = import_module("polars")
        # keys of a config may hold a number in one job and a word in another
        return polars.DataFrame(self.rows(), infer_schema_length=None, strict=False)

    def metrics(self, *names: str) -> "Points":
        """Every point of these metrics (all of them without a name), of the lowest rank of each job,
        as one table: `hw.jobs(experiment="digits").metrics("loss").to_pandas()`. Attempts are
        joined, as by `Job.metrics`.
        """
        import numpy as np

        columns: dict[str, list[Any]] = {name: [] for name in Points._fields}
        with _source() as source:
            for job in self:
                query = [("name", list(names)), ("joined", "true")]
                answer = source.get(job_route(job.id, "metrics"), query)
                for name, entries in next(iter(answer.values()), {}).items():
                    if not entries:
                        continue
                    series = _series(name, min(entries, key=lambda one: int(one["rank"])))
                    count = len(series.step)
                    columns["job"].append(np.full(count, job.id, dtype=object))
                    columns["name"].append(np.full(count, name, dtype=object))
                    columns["step"].append(series.step)
                    columns["time"].append(series.time)
                    columns["value"].append(series.value)
        kinds = (object, object, np.int64, "datetime64[us]", np.float64)
        empty = [np.empty(0, kind) for kind in kinds]
        return Points(
            *(
                np.concatenate([none, *columns[name]])
                for name, none in zip(Points._fields, empty, strict=True)
            )
        )


class Points(NamedTuple):
    """Points of many jobs and metrics: arrays of equal length."""

    job: "np.ndarray[Any, Any]"
    name: "np.ndarray[Any, Any]"
    step: "np.ndarray[Any, Any]"
    time: "np.ndarray[Any, Any]"  # UTC, numpy's datetime64[us]
    value: "np.ndarray[Any, Any]"

    def to_pandas(self) -> Any:
        """Columns job, name, step, time, value. Needs pandas."""
        return import_module("pandas").DataFrame(self._asdict())

    def to_polars(self) -> Any:
        """Columns job, name, step, time, value. Needs polars."""
        columns = {**self._asdict(), "job": self.job.tolist(), "name": self.name.tolist()}
        return import_module("polars").DataFrame(columns)


def jobs(
    *,
    state: str | Iterable[str] | None = None,
    experiment: str | None = None,
    cluster: str | None = None,
    where: str | None = None,
    match: str | None = None,
    since_s: float | None = None,
    array: str | None = None,
    limit: int | None = None,
) -> Jobs:
    """Jobs, newest first: `hw.jobs(experiment="digits", where="lr < 0.1 and val/acc > 0.9")`.

    The same filters as `hw ls`; `since_s` is in seconds.
    """
    states = [state] if isinstance(state, str) else list(state or [])
    query = [
        ("state", states), ("experiment", experiment), ("cluster", cluster), ("where", where), ("match", match),
        ("since", since_s), ("array", array), ("limit", limit), ("config", "true"),
    ]  # fmt: skip
    with _source() as source:
        return Jobs(Job(row) for row in source.get("/api/jobs", query))


def job(ref: str = "last") -> Job:
    """One job: by its id or an ending of it, by its name (of several the newest), or `last`."""
    from headway.views.cli.references import look_up

    with _source() as source:
        meant = look_up(source, ref)
        if meant["kind"] == "array":
            raise NotFoundError(
                f"{meant['id']} is an array of jobs", f'hw.jobs(array="{meant["id"]}") lists them'
            )
        return Job(source.get(job_route(str(meant["id"]))))


def submit(
    command: str | Path | Sequence[str],
    *,
    n: int | None = None,
    name: str | None = None,
    experiment: str | None = None,
    tags: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
    cluster: str | None = None,
    nodes: int | None = None,
    cpus: int | None = None,
    memory: str | None = None,
    max_duration: str | None = None,
    priority: int | None = None,
    retry: int | None = None,
    hold: str | None = None,
    image: str | None = None,
    parameters: JsonMapping | None = None,
    snapshot: bool = False,
    smoke: bool = False,
) -> Job:
    """Put a job in the queue and return: `hw.submit(["python", "train.py", "--lr", "0.1"], n=4)`.

    `command` is a list of words, or the path of a job file (`job.yaml`), whose parameters
    `parameters` sets. The options are those of `hw submit`.
    """
    words = [str(command)] if isinstance(command, str | Path) else [str(word) for word in command]
    if len(words) == 1 and isinstance(command, str) and not words[0].endswith((".yaml", ".yml")):
        raise UsageError(
            f"a command is a list of words, not {command[:60]!r}",
            'for example: hw.submit(["python", "train.py"])',
        )
    options = {
        "-n": n, "--name": name, "--experiment": experiment, "--tag": list(tags), "--env": env, "--cluster": cluster,
        "--nodes": nodes, "--cpus": cpus, "--memory": memory, "--max-duration": max_duration,
        "--priority": priority, "--retry": retry, "--hold": hold, "--image": image, "--set": parameters,
        "--snapshot": snapshot, "--smoke": smoke,
    }  # fmt: skip
    return _submit([*_argv(options), "submit", *words])


def _submit(argv: list[str]) -> Job:
    from headway.views.cli import submission
    from headway.views.cli.commands import COMMANDS
    from headway.views.cli.dispatch import Call
    from headway.views.cli.options import Parser
    from headway.views.text.terminal import Terminal

    parsed = Parser(COMMANDS).parse(argv)
    assert parsed.command is not None
    call = Call(parsed.command, parsed.values, parsed.words, parsed.after, Terminal())
    with _source() as source:
        found = submission.submit(source, call)
    if found.get("is_array"):
        raise UsageError(
            f"{found['id']} is an array of {found['jobs']} jobs, and has been submitted",
            f'hw.jobs(array="{found["id"]}") lists them',
        )
    return Job(found)


def _argv(options: JsonMapping) -> list[str]:
    words: list[str] = []
    for option, value in options.items():
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        elif isinstance(value, Mapping):
            for key, one in value.items():
                words += [option, f"{key}={one}"]
        elif isinstance(value, list):
            for one in value:
                words += [option, str(one)]
        else:
            words += [option, str(value)]
    return words


@contextmanager
def _source() -> "Iterator[Source]":
    """A connection for one question: jobs may be asked from several threads."""
    source = Source.connect()
    try:
        yield source
    finally:
        source.close()


def _series(name: str, found: JsonMapping) -> Series:
    import numpy as np

    times = [str(text).removesuffix("Z") for text in found["time"]]
    return Series(
        name,
        int(found["rank"]),
        np.array(found["step"], dtype=np.int64),
        np.array([_number(value) for value in found["value"]], dtype=np.float64),
        np.array(times, dtype="datetime64[us]"),
    )


def _number(value: object) -> Any:
    """NaN and infinities are strings in JSON."""
    return _SPECIAL.get(value, value) if isinstance(value, str) else value


def _row(job: Job) -> JsonObject:
    kept = ("id", "name", "state", "experiment", "cluster", "submitted_at", "elapsed_s")
    row = {name: job._data.get(name) for name in kept}
    for name, value in {**job.parameters, **(job._data.get("config") or {})}.items():
        row.setdefault(
            str(name), value if isinstance(value, str | int | float | bool | None) else str(value)
        )
    for name, value in job.summary.items():
        row.setdefault(str(name), value)
    return row
