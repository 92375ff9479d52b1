"""The public names of the client: `init`, `log`, `finish`, `flush`, `config` and what `_LATER` has.
For training.

Nothing here raises into training or waits for a network (P1). `log` is client/metric.py's own
function, so that no call stands between training and the hot path.
"""

from __future__ import annotations

import sys

from headway.client import hooks
from headway.client.interrupt import raise_if_signal
from headway.client.run import Run as ProcessRun
from headway.client.run import is_interactive
from headway.client.spool_path import from_environment

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterable

    from headway.client.artifact import artifact
    from headway.client.data_inputs import data, use_artifact
    from headway.client.define import alert, define_metric, summary
    from headway.client.handle import Run as Handle
    from headway.client.logging_capture import correlation
    from headway.client.media import (
        Audio,
        Figure,
        File,
        Histogram,
        Html,
        Image,
        Table,
        Text,
        Video,
    )
    from headway.client.preempt import on_preempt
    from headway.client.progress import Progress, track
    from headway.client.timing import timed
    from headway.client.usage_marks import Usage
    from headway.model.json_types import JsonObject

    __all__ = [
        "Audio", "Figure", "File", "Histogram", "Html", "Image", "Progress", "Table", "Text",
        "Usage", "Video", "alert", "artifact", "config", "correlation", "data", "define_metric",
        "finish", "flush", "init", "log", "on_preempt", "summary", "timed", "track", "use_artifact",
    ]  # fmt: skip

# Loaded when they are used first: most programs need none or one of them.
_LATER = {
    "Audio": "media",
    "Figure": "media",
    "File": "media",
    "Histogram": "media",
    "Html": "media",
    "Image": "media",
    "Table": "media",
    "Text": "media",
    "Video": "media",
    "Run": "handle",
    "alert": "define",
    "artifact": "artifact",
    "data": "data_inputs",
    "define_metric": "define",
    "use_artifact": "data_inputs",
    "summary": "define",
    "Progress": "progress",
    "Usage": "usage_marks",
    "correlation": "logging_capture",
    "on_preempt": "preempt",
    "timed": "timing",
    "track": "progress",
}
_run = ProcessRun()
_run.on_start = hooks.install
log = _run.log
config = _run.config


def init(
    config: object = None,
    tags: "Iterable[str] | str | None" = None,
    name: str | None = None,
    experiment: str | None = None,
) -> "Handle":
    """Say what this run is: `hw.init(config={"lr": 0.1}, tags=["baseline"])`. Optional; may be
    called again. After `finish()`, or in a notebook, it begins another run: a job of its own.

    Returns the run: `with hw.init(...) as run: run.log(...)`, `run.config`, `run.id`.

    `config` may be a dictionary, a namespace, a dataclass, an OmegaConf and the like; it joins
    `hw.config`. `name` and `experiment` are for a script started by plain `python`; under `hw run`
    the command line has said them.
    """
    try:
        _run.init(config, tags, name, experiment)
    except Exception as error:  # P1: no call of ours raises into training
        raise_if_signal(error)
        _run.note("init", f"init() failed: {type(error).__name__}: {error}")
    from headway.client.handle import Run as Handle

    return Handle(_run)


def finish(exit_code: int | None = None) -> None:
    """Say that this run is over before the process is, and with `exit_code` how. Not needed at the
    end of a script. The next `init` begins another run.
    """
    try:
        place = _run.place
        if exit_code is None and place is not None and place.attached and is_interactive():
            _run.end_run(0)  # the prompt or kernel may live for days
        elif exit_code is None:
            _run.finish()
        elif place is not None and place.attached:
            _run.end_run(hooks.code_of(exit_code))
        else:
            _run.end(hooks.code_of(exit_code))
    except Exception as error:  # P1: no call of ours raises into training
        raise_if_signal(error)
        _run.note("finish", f"finish() failed: {type(error).__name__}: {error}")


def flush(durable: bool = False) -> None:
    """With `durable=True`, wait until what was logged so far would survive a power cut. Otherwise
    there is nothing to wait for: whatever `log` has returned from survives the process already.
    """
    try:
        _run.flush(durable)
    except Exception as error:  # P1: no call of ours raises into training
        raise_if_signal(error)
        _run.note("flush", f"flush() failed: {error}")


def current_run() -> ProcessRun:
    """The run of this process."""
    return _run


def __getattr__(name: str) -> object:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    __import__(f"headway.client.{module}")
    return getattr(sys.modules[f"headway.client.{module}"], name)


def watch_logging() -> None:
    """For the bootstrap, in a process of a job that makes its first record with `logging`."""
    from headway.client import logging_capture

    logging_capture.install(_run)


def hint(key: str, text: str) -> None:
    """Tell whoever looks at the job something once, and nothing on the program's own stderr."""
    _run.note(key, text, level="hint")


def note_arguments(values: "JsonObject", rest: "list[str]") -> None:
    """For the bootstrap, in a process of a job whose program has parsed its arguments, but for the
    words `rest`. They are the job's config unless the program tells one itself.
    """
    if _run.place is not None or from_environment(_run.environ) is not None:
        _run.note_arguments(values, rest)


def report_exception(where: str, error: BaseException, thread: str | None = None) -> None:
    """For the bootstrap's hooks, in a process that may not have used headway before. It makes no
    job of its own.
    """
    if _run.place is not None or from_environment(_run.environ) is not None:
        _run.exception(where, error, thread=thread)
    hooks.keep_interrupted(error)
