"""`import wandb`, answered by Headway: `import headway.compat.wandb as wandb`, or `hw run --as wandb` without an edit.

What a script writes (init, log, config, summary, Image, Table, Artifact, alert …) is kept as records of its job. What
would read from wandb's server raises with a hint; what Headway does not know does nothing, and says so once. Works
where wandb is not installed.
"""

import os
import sys
from enum import Enum

from headway.compat import wandb_config, wandb_errors, wandb_plot, wandb_sweep, wandb_types
from headway.compat.wandb_anything import Nothing, anything
from headway.compat.wandb_artifact import Artifact
from headway.compat.wandb_errors import CommError, Error, UsageError, cannot_read
from headway.compat.wandb_run import Run, RunDisabled, generate_id
from headway.compat.wandb_sweep import agent, sweep
from headway.compat.wandb_types import (
    Audio,
    Bokeh,
    Classes,
    Histogram,
    Html,
    Image,
    JoinedTable,
    Molecule,
    Object3D,
    Plotly,
    Table,
    Video,
    WBValue,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from headway.model.json_types import JsonObject

__version__ = "0.22.2"  # the interface that is answered; libraries ask for a least version
__all__ = [
    "AlertLevel",
    "Api",
    "Artifact",
    "Audio",
    "Bokeh",
    "Classes",
    "CommError",
    "Error",
    "Histogram",
    "Html",
    "Image",
    "JoinedTable",
    "Molecule",
    "Object3D",
    "Plotly",
    "Run",
    "RunDisabled",
    "Settings",
    "Table",
    "UsageError",
    "Video",
    "WBValue",
    "agent",
    "alert",
    "config",
    "define_metric",
    "errors",
    "finish",
    "generate_id",
    "init",
    "log",
    "log_artifact",
    "login",
    "plot",
    "run",
    "save",
    "summary",
    "sweep",
    "util",
    "watch",
]  # fmt: skip

errors = wandb_errors
plot = wandb_plot
plot_table = wandb_plot.plot_table
data_types = wandb_types
run: "Run | None" = None
_count = 0  # runs that this process has begun
_early = wandb_config.Config(lambda items: None)  # what is set before init
config: "Any" = _early
summary: "Any" = wandb_config.Summary(lambda changed: None)
util = type(sys)("wandb.util")
util.generate_id = generate_id  # type: ignore[attr-defined]


class AlertLevel(Enum):
    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


class Settings:
    """Takes everything; what is asked for and was not given is None."""

    def __init__(self, *_: object, **values: object) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> "Any":
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    def update(self, *_: object, **values: object) -> None:
        self.__dict__.update(values)


class Api:
    def __init__(self, *_: object, **__: object) -> None:
        raise cannot_read("wandb.Api()")


PublicApi = InternalApi = Api


def init(
    entity: "str | None" = None,
    project: "str | None" = None,
    dir: "Any" = None,
    id: "str | None" = None,
    name: "str | None" = None,
    notes: "str | None" = None,
    tags: "Any" = None,
    config: "Any" = None,
    config_exclude_keys: "Any" = None,
    config_include_keys: "Any" = None,
    group: "str | None" = None,
    job_type: "str | None" = None,
    mode: "str | None" = None,
    reinit: "Any" = None,
    resume: "Any" = None,
    sync_tensorboard: "Any" = None,
    settings: "Any" = None,
    **_: "Any",
) -> Run:
    """Begin a run; one that goes on already is given back, as wandb does."""
    global run, _count
    if run is not None and reinit not in (True, "finish_previous", "create_new"):
        if config is not None:
            run.config.update(
                wandb_config.parse_config(config, config_include_keys, config_exclude_keys)
            )
        return run
    if run is not None:
        run.finish()
    mode = mode or getattr(settings, "mode", None) or os.environ.get("WANDB_MODE")
    is_off = mode == "disabled"
    kind = RunDisabled if is_off else Run
    told = {
        "id": id, "name": name, "project": project, "entity": entity, "group": group, "job_type": job_type,
        "notes": notes, "tags": tags, "sweep_id": "local" if wandb_sweep.chosen else None,
    }  # fmt: skip
    if not is_off:
        _describe(told)
    made = kind(0 if is_off else _count, is_off=is_off, on_finish=_finished, **told)
    if not is_off:
        _count += 1
    run = made
    first = {
        **_early.as_dict(),
        **wandb_config.parse_config(config, config_include_keys, config_exclude_keys),
    }
    if wandb_sweep.chosen:
        made.config.update_locked(wandb_sweep.chosen[0])
    if first or wandb_sweep.chosen:
        made.config.update(first)
    _set(made)
    return made


def _describe(told: "JsonObject") -> None:
    """Name, project and the like: of a job of its own for plain `python`, else beside what the command line says."""
    from headway.client import api

    given = told.get("tags")
    words = [given] if isinstance(given, str) else list(given or ())
    project = told.get("project") or os.environ.get("WANDB_PROJECT")
    current = api.current_run()
    if _count == 0:
        is_attached = current.place is None and not os.environ.get("HEADWAY_SPOOL")
        name = told.get("name") or os.environ.get("WANDB_NAME")
        api.init(
            tags=words,
            name=name if is_attached else None,
            experiment=project if is_attached else None,
        )
    elif words:
        api.init(tags=words)
    fields = {
        key: str(told[key]) for key in ("name", "group", "job_type", "notes") if told.get(key)
    }
    if project:
        fields["experiment"] = str(project)
    if fields and _count == 0:
        current.fact("describe", source="wandb", **fields)


def _set(made: "Run | None") -> None:
    """The module's own names, also under the name `wandb`, follow the run."""
    module = sys.modules[__name__]
    now = {
        "run": made,
        "config": made.config if made else _early,
        "summary": made.summary if made else _no_summary,
    }
    for name, value in now.items():
        setattr(module, name, value)


_no_summary = summary


def _finished(ended: Run) -> None:
    if run is ended:
        _set(None)


def _need(call: str) -> Run:
    if run is None:
        raise Error(f"You must call wandb.init() before {call}")
    return run


def log(
    data: "JsonObject | None" = None,
    step: "int | None" = None,
    commit: "bool | None" = None,
    sync: object = None,
) -> None:
    _need("wandb.log()").log(data, step, commit)


def _of_run(name: str) -> "Callable[..., Any]":
    def call(*args: object, **options: object) -> "Any":
        return getattr(_need(f"wandb.{name}()"), name)(*args, **options)

    call.__name__ = call.__qualname__ = name
    return call


define_metric = _of_run("define_metric")
alert = _of_run("alert")
log_artifact = _of_run("log_artifact")
log_model = _of_run("log_model")
link_model = _of_run("link_model")
use_artifact = _of_run("use_artifact")
use_model = _of_run("use_model")
mark_preempting = _of_run("mark_preempting")
restore = _of_run("restore")


def save(*args: "Any", **options: "Any") -> "Any":
    return run.save(*args, **options) if run is not None else []


def watch(*args: object, **options: object) -> "Any":
    return _need("wandb.watch()").watch(*args, **options)


def unwatch(*_: object, **__: object) -> None:
    return None


def finish(exit_code: "int | None" = None, quiet: "bool | None" = None) -> None:
    if run is not None:
        run.finish(exit_code, quiet)


def login(*_: object, **__: object) -> bool:
    return True


def setup(*_: object, **__: object) -> Nothing:
    return Nothing()


def teardown(exit_code: "int | None" = None) -> None:
    finish(exit_code)


join = finish


def require(*_: object, **__: object) -> None:
    return None


ensure_configured = require


def controller(*_: object, **__: object) -> "Any":
    raise cannot_read("wandb.controller()")


def termlog(text: str = "", *_: object, **__: object) -> None:
    sys.stderr.write(f"wandb: {text}\n")


termwarn = termerror = termlog


def __getattr__(name: str) -> "Any":
    if name.startswith("__"):
        raise AttributeError(name)
    from headway.compat.wandb_finder import find_part

    part = find_part(f"wandb.{name}")
    return part if part is not None else anything(name)
