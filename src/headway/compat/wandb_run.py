"""The run that `wandb.init` answers with: its calls become records of the job that this process belongs to.

The first run of a process is the job itself. A script that begins further ones has them in the same job, as series with
the tag `run`, and with their configs below `runs`.
"""

import glob as globbing
import json
import os
import time

from headway.client import media
from headway.compat.wandb_anything import Nothing
from headway.compat.wandb_artifact import Artifact
from headway.compat.wandb_config import Config, Summary, parse_config
from headway.compat.wandb_errors import Error, cannot_read
from headway.compat.wandb_types import Table, WBValue, warn_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

    from headway.model.json_types import JsonObject

_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
ARRAY_MIN = 2  # elements from which an array is shown as a histogram


def generate_id(length: int = 8) -> str:
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in os.urandom(length))


class Metric:
    """What `define_metric` answers with."""

    def __init__(self, name: str, step_metric: "str | None", summary: object, goal: object) -> None:
        self.name, self.step_metric, self.summary, self.goal = name, step_metric, summary, goal
        self.hidden, self.step_sync = None, None


class Run:
    """`number`: 0 is the job itself, further ones are runs within it. `is_off`: it takes all and keeps nothing."""

    def __init__(
        self,
        number: int,
        *,
        config: "JsonObject | None" = None,
        is_off: bool = False,
        on_finish: "Callable[[Run], None] | None" = None,
        **told: "Any",
    ) -> None:
        self.number, self.disabled = number, is_off
        self._on_finish = on_finish
        self.id = str(told.get("id") or os.environ.get("WANDB_RUN_ID") or generate_id())
        name = told.get("name") or os.environ.get("WANDB_NAME")
        self._name = str(name) if name else os.environ.get("HEADWAY_JOB") or f"run-{self.id}"
        self._series_tags = {"run": self._name} if number else None
        self.project = str(
            told.get("project") or os.environ.get("WANDB_PROJECT") or "uncategorized"
        )
        self.entity = str(told.get("entity") or os.environ.get("WANDB_ENTITY") or "headway")
        self.group = told.get("group") or os.environ.get("WANDB_RUN_GROUP") or ""
        self.job_type = told.get("job_type") or os.environ.get("WANDB_JOB_TYPE") or ""
        self._notes = told.get("notes")
        given = told.get("tags")
        self._tags = tuple([given] if isinstance(given, str) else given or ())
        self.resumed = False
        self.sweep_id = told.get("sweep_id")
        self.offline = False
        self.start_time = time.time()
        self._step = 0
        self._dir: str | None = None
        self._alerted: dict[str, float] = {}
        self._is_finished = False
        self.config = Config(self._tell_config)
        self.summary = Summary(self._tell_summary)
        if config:
            self.config.update(config)

    # -- what it is ----

    @property
    def name(self) -> str:
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = str(name)
        self._tell("describe", name=self._name)

    @property
    def notes(self) -> "str | None":
        return self._notes

    @notes.setter
    def notes(self, notes: str) -> None:
        self._notes = notes
        self._tell("describe", notes=str(notes))

    @property
    def tags(self) -> "tuple[str, ...]":
        return self._tags

    @tags.setter
    def tags(self, tags: "Any") -> None:
        self._tags = tuple([tags] if isinstance(tags, str) else tags or ())
        if not self.disabled:
            from headway.client import api

            api.init(tags=self._tags)

    @property
    def dir(self) -> str:
        """A folder of this run; what the script puts there is kept as an artifact at its end."""
        if self._dir is None:
            top = os.environ.get("HEADWAY_OUTPUT_DIR") or os.environ.get("WANDB_DIR") or os.getcwd()
            self._dir = os.path.join(top, "wandb", f"run-{self.id}", "files")
            os.makedirs(self._dir, exist_ok=True)
        return self._dir

    @property
    def step(self) -> int:
        return self._step

    @property
    def path(self) -> str:
        return f"{self.entity}/{self.project}/{self.id}"

    @property
    def url(self) -> str:
        return (
            f"headway:{os.environ.get('HEADWAY_JOB') or os.environ.get('HEADWAY_UUID') or self.id}"
        )

    @property
    def settings(self) -> "Any":
        from headway.compat.wandb import Settings

        return Settings(run_id=self.id, project=self.project, mode="offline")

    @property
    def mode(self) -> str:
        return "disabled" if self.disabled else "offline"

    @property
    def starting_step(self) -> int:
        return 0

    def get_url(self) -> str:
        return self.url

    get_project_url = get_sweep_url = project_url = sweep_url = get_url

    def project_name(self) -> str:
        return self.project

    def display(self, *_: object, **__: object) -> bool:
        return False

    def to_html(self, *_: object, **__: object) -> str:
        return f"<p>{self.url}</p>"

    def status(self) -> "Any":
        return None

    # -- logging ----

    def log(
        self,
        data: "JsonObject | None" = None,
        step: "int | None" = None,
        commit: "bool | None" = None,
        sync: "bool | None" = None,
    ) -> None:
        """Written at once, at wandb's own step: it goes on with each call that commits."""
        if data is None:
            data = {}  # only to end a step
        if not isinstance(data, dict) and not hasattr(data, "keys"):
            raise ValueError("wandb.log must be passed a dictionary")
        if any(not isinstance(key, str) for key in data):
            raise ValueError("Key values passed to `wandb.log` must be strings.")
        if step is not None:
            number = int(step)
            if number < self._step:
                warn_once(
                    "step",
                    f"wandb.log: step {number} is before {self._step}; wandb drops such values, here they are kept",
                )
            self._step = max(self._step, number)
        else:
            number = self._step
        if not self.disabled and not self._is_finished:
            self._write(data, number)
        if commit or (commit is None and step is None):
            self._step += 1

    def _write(self, data: object, step: int) -> None:
        from headway.client import api

        points: JsonObject = {}
        shown: list[tuple[str, object]] = []
        self._sort("", data, points, shown)
        if points:
            api.log(points, step=step, tags=self._series_tags)
            self.summary._logged(points)
        for name, thing in shown:
            api.log({name: thing}, step=step, tags=self._series_tags)

    def _sort(
        self, prefix: str, data: "Any", points: "JsonObject", shown: "list[tuple[str, object]]"
    ) -> None:
        """Numbers apart from what is to be looked at; nested dictionaries become `outer/inner`."""
        for key in list(data.keys()):
            name, value = f"{prefix}{key}", data[key]
            if isinstance(value, bool | int | float):
                points[name] = value
            elif value is None or isinstance(value, Nothing):
                continue
            elif isinstance(value, dict) and not isinstance(value, WBValue):
                self._sort(f"{name}/", value, points, shown)
            elif isinstance(value, str):
                shown.append((name, media.Text(value)))
            elif isinstance(value, Table):
                shown.append((name, value))
                for column, row, thing in value._cells():
                    thing.meta["row"] = row
                    shown.append((f"{name}/{column}", thing))
            elif isinstance(value, list | tuple):
                self._sort_list(name, value, shown)
            elif (
                getattr(value, "size", None) is not None
                and _elements(value) >= ARRAY_MIN
                and hasattr(value, "tolist")
            ):
                shown.append((name, media.Histogram(value)))
            else:
                points_or_media(name, value, points, shown)

    def _sort_list(self, name: str, values: "Any", shown: "list[tuple[str, object]]") -> None:
        things = [
            value
            for value in values
            if isinstance(value, WBValue) or media.as_media(value) is not None
        ]
        if things:
            shown.extend((name, thing) for thing in things)
            return
        from headway.client.config_plain import plain

        shown.append((name, media.Text(json.dumps(plain(list(values))[0]))))

    def _tell(self, kind: str, **fields: object) -> None:
        if not self.disabled:
            from headway.client.api import current_run

            current_run().fact(kind, **fields)

    def _tell_config(self, items: "JsonObject") -> None:
        if self.disabled:
            return
        from headway.client import api

        if self.number == 0:
            api.config.update(items)
            return
        runs = dict(api.config.get("runs") or {})
        runs[self._name] = dict(items)
        api.config["runs"] = runs

    def _tell_summary(self, changed: "JsonObject") -> None:
        if self.disabled:
            return
        from headway.client.define import summary

        kept = {name: value for name, value in changed.items() if not isinstance(value, WBValue)}
        suffix = f"{{run={self._name}}}" if self.number else ""
        summary.update({f"{name}{suffix}": value for name, value in kept.items()})
        for name, value in changed.items():
            if isinstance(value, WBValue):
                self._write({name: value}, self._step)

    def define_metric(
        self,
        name: "Any",
        step_metric: "Any" = None,
        step_sync: "bool | None" = None,
        hidden: "bool | None" = None,
        summary: "str | None" = None,
        goal: "str | None" = None,
        overwrite: "bool | None" = None,
    ) -> Metric:
        over = getattr(step_metric, "name", step_metric)
        if not self.disabled:
            from headway.client.define import define_metric

            define_metric(str(name), x=over, goal=goal, summary=summary)
        return Metric(str(name), over, summary, goal)

    def alert(
        self, title: str, text: str = "", level: "Any" = None, wait_duration: "Any" = None
    ) -> None:
        """Told at most once per title and minute, or as `wait_duration` says."""
        wait_s = getattr(wait_duration, "total_seconds", lambda: wait_duration)()
        now_s = time.monotonic()
        last_s = self._alerted.get(title)
        if last_s is not None and now_s < last_s + (60.0 if wait_s is None else float(wait_s)):
            return
        self._alerted[title] = now_s
        if not self.disabled:
            from headway.client.define import alert

            alert(title, text, str(getattr(level, "value", level) or "info"))

    # -- files ----

    def save(
        self, glob_str: "Any" = None, base_path: "Any" = None, policy: str = "live", **_: "Any"
    ) -> "list[str] | bool":
        """Kept now, and once more at the end if they have changed: the same content is the same version."""
        if glob_str is None or self.disabled:
            return True
        found = [
            path
            for path in globbing.glob(os.fspath(glob_str), recursive=True)
            if os.path.isfile(path)
        ]
        if found:
            from headway.client.artifact import put

            base = (
                os.fspath(base_path)
                if base_path is not None
                else os.path.dirname(os.path.abspath(found[0]))
            )
            entries = [(os.path.relpath(path, base), os.path.abspath(path)) for path in found]
            put(
                entries,
                os.path.basename(os.fspath(glob_str)).replace("*", "_") or "files",
                "saved",
                {},
                [],
            )
        return found

    def log_artifact(
        self,
        artifact_or_path: "Any",
        name: "str | None" = None,
        type: "str | None" = None,
        aliases: "Any" = None,
        tags: "Any" = None,
    ) -> Artifact:
        artifact = artifact_or_path
        if not isinstance(artifact, Artifact):
            path = os.fspath(artifact_or_path)
            artifact = Artifact(
                name or f"run-{self.id}-{os.path.basename(path)}", type or "unspecified"
            )
            if os.path.isdir(path):
                artifact.add_dir(path)
            else:
                artifact.add_file(path)
        if not self.disabled:
            artifact._put(aliases)
        return artifact

    upsert_artifact = finish_artifact = log_artifact

    def log_model(self, path: "Any", name: "str | None" = None, aliases: "Any" = None) -> Artifact:
        return self.log_artifact(path, name or os.path.basename(os.fspath(path)), "model", aliases)

    def log_code(self, root: object = ".", *_: object, **__: object) -> None:
        """Headway keeps the code of each job by itself."""
        return None

    def link_artifact(self, *_: object, **__: object) -> None:
        return None

    link_model = link_artifact

    def use_artifact(self, artifact_or_name: object, *_: object, **__: object) -> "Any":
        if isinstance(artifact_or_name, Artifact):
            return artifact_or_name  # one that this script has made
        raise cannot_read(f"use_artifact({str(artifact_or_name)!r})")

    def use_model(self, name: str) -> "Any":
        raise cannot_read(f"use_model({name!r})")

    def restore(self, name: str, *_: object, **__: object) -> "Any":
        raise cannot_read(f"restore({name!r})")

    # -- the rest ----

    def watch(self, *_: object, **__: object) -> None:
        """Gradients and parameters are not kept; the calls cost nothing."""
        warn_once("watch", "wandb.watch: gradients and parameters are not recorded; metrics are")

    def unwatch(self, *_: object, **__: object) -> None:
        return None

    def mark_preempting(self) -> None:
        self._tell("note", level="info", text="the script says that it is about to be preempted")

    def finish(self, exit_code: "int | None" = None, quiet: "bool | None" = None) -> None:
        if self._is_finished:
            return
        self._is_finished = True
        if self._dir is not None and not self.disabled and any(os.scandir(self._dir)):
            self.log_artifact(self._dir, f"run-{self.id}-files", "files")
        if not self.disabled:
            from headway.client import api

            api.flush()
        if self._on_finish is not None:
            self._on_finish(self)

    join = finish

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self,
        kind: "type[BaseException] | None",
        error: "BaseException | None",
        trace: "TracebackType | None",
    ) -> bool:
        self.finish(exit_code=0 if kind is None else 1)
        return kind is None

    def __getattr__(self, name: str) -> "Any":
        if name.startswith("__"):
            raise AttributeError(name)
        from headway.compat.wandb_anything import anything

        return anything(f"run.{name}")

    def __repr__(self) -> str:
        return f"<headway.compat.wandb.Run {self._name}>"


class RunDisabled(Run):
    """Of `mode="disabled"`."""


def points_or_media(
    name: str, value: object, points: "JsonObject", shown: "list[tuple[str, object]]"
) -> None:
    if isinstance(value, WBValue) or media.as_media(value) is not None:
        shown.append((name, value))
    else:
        points[name] = value  # hw.log takes every scalar, and names what it refuses


def _elements(value: object) -> int:
    size = value.numel() if hasattr(value, "numel") else getattr(value, "size", 1)
    return size if isinstance(size, int) else 1


__all__ = ["Error", "Metric", "Run", "RunDisabled", "generate_id", "parse_config"]
