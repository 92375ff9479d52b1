"""Every plain field of a job, of a role and of its retries: type, limits, words, and where it may
stand. One table for options, job files, defaults of a project, the JSON Schema, the reference and
the server's check.

A new field of a job is a line here, a line in `model/job.py`, and the place that uses it. Fields
with a shape of their own (command, env, folders, roles, arrays) are in `jobschema.py`.

Read by every command of `hw`, so that dataclasses and the readers of quantities are loaded only
where a value is read.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from headway.model.engine_words import LAUNCHERS, ON_HANG
from headway.model.errors import UsageError
from headway.model.limits import (
    DURATION_S_MAX,
    HOLD_S_MAX,
    NODES_MAX,
    PROCESSES_MAX,
    RETRIES_MAX,
    ROLE_NAME_CHARS_MAX,
    TAG_CHARS_MAX,
    TAGS_MAX,
    TASKS_MAX,
)
from headway.model.value import Value

_CORES_MAX: Final = 1 << 20
_BYTES_MAX: Final = 1 << 60
_PRIORITY_MAX: Final = 1_000_000
_IMAGE_CHARS_MAX: Final = 512
_ROLE_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*\Z")


class Rule(Value):
    """What a value is. `what`: count, seconds, bytes, choice, flag, name, image or tags."""

    what: str
    least: float = 0
    most: float = 0
    choices: tuple[str, ...] = ()


def count(least: int, most: int) -> Rule:
    return Rule("count", least, most)


def seconds(most: float = DURATION_S_MAX, *, zero: bool = False) -> Rule:
    return Rule("seconds", 0 if zero else 1e-9, most)


def choice(*choices: str) -> Rule:
    return Rule("choice", choices=choices)


SIZE: Final = Rule("bytes", 1, _BYTES_MAX)
FLAG: Final = Rule("flag")
NAME: Final = Rule("name")
IMAGE: Final = Rule("image")
TAGS: Final = Rule("tags", most=TAGS_MAX)


class Field(Value):
    """One field. `name`: in a JobSpec and in JSON. `key`: in a job file; empty: it is not there.
    `option`: of the command line; empty: it is none. `help`: for the option; `doc`: in the
    reference and the schema, where more fits. `default`: it may stand under `defaults` in
    headway.yaml.
    """

    name: str
    rule: Rule
    doc: str
    key: str = ""
    option: tuple[str, ...] = ()
    value: str = ""  # what stands for the option's value in help
    help: str = ""
    many: bool = False
    default: bool = False
    nullable: bool = False  # None: nothing was asked for


JOB: Final = (
    Field("name", NAME, "The job's name. Default: after the script.", "name",
          ("--name",), "NAME", "the job's name; default: after the script"),
    Field("processes", count(1, PROCESSES_MAX), "", "",
          ("-n", "--processes"), "N", "N processes with RANK, LOCAL_RANK and WORLD_SIZE"),
    Field("gpu_per_node", count(1, PROCESSES_MAX), "GPUs of one node. Default: the cluster's own.", "gpu_per_node",
          default=True, nullable=True),
    Field("nodes", count(1, NODES_MAX), "Nodes that the processes are spread over. Default: as few as will do.", "nodes",
          ("--nodes",), "N", "nodes that they are spread over; default: as few as will do"),
    Field("multi_process", FLAG, "true: one process per GPU; false: one per node. Default true.", "multi_process",
          default=True),
    Field("launcher", choice(*LAUNCHERS), "Who starts the processes: `ranks` (Headway; default) or `mpirun`.", "launcher",
          ("--launcher",), "NAME", "who starts the N processes: ranks (Headway, default) or mpirun", nullable=True),
    Field("cpus", count(1, _CORES_MAX), "Cores that the job needs.", "cpus",
          ("--cpus",), "N", "cores that the job needs", default=True, nullable=True),
    Field("memory_bytes", SIZE, "Memory that the job needs.", "memory",
          ("--memory",), "SIZE", "memory that the job needs and may have, such as 32GiB", default=True, nullable=True),
    Field("max_duration_s", seconds(), "The job is stopped after this time.", "time",
          ("--max-duration",), "TIME", "stop it after this time, such as 90s or 3.5h", default=True, nullable=True),
    Field("grace_s", seconds(zero=True), "Time between SIGTERM and SIGKILL.", "grace", default=True),
    Field("monitoring_interval_s", seconds(zero=True), "Time between two samples of usage; 0 takes none.",
          "monitoring_interval", ("--monitoring-interval-s", "--monitoring-interval"), "TIME",
          "time between two samples of usage; 0 takes none", default=True),
    Field("image", IMAGE, "Container image, for engines with containers.", "image",
          ("--image",), "NAME", "the image, for clusters with containers", default=True, nullable=True),
    Field("hold_s", seconds(HOLD_S_MAX, zero=True), "How long a failed task is kept, for a person to enter it.", "hold",
          ("--hold",), "TIME", "keep a failed task for this long, to enter it", default=True),
    Field("on_hang", choice(*ON_HANG), "What a hang is answered with; `stacks`: keep them, tell nobody. Default notify.",
          "on_hang", ("--on-hang",), "WHAT",
          "what a hang is answered with: notify, stacks (keep them, tell nobody), restart or stop; default notify",
          default=True),
    Field("pty", FLAG, "true: stdout and stderr are terminals, for programs that draw only on one. Default false.", "pty",
          ("--pty",), "", "give it a terminal, for programs that draw only on one", default=True),
    Field("experiment", NAME, "The experiment, a named group of jobs.", "experiment",
          ("-e", "--experiment", "--experiment_name"), "NAME", "the experiment, a named group of jobs", nullable=True),
    Field("tags", TAGS, "Tags.", "tags", ("--tag",), "TAG", "a tag; may be repeated", many=True, default=True),
    Field("cluster", NAME, "The cluster. Default: the setting default_cluster.", "cluster",
          ("-c", "--cluster"), "NAME", "the cluster, or auto for the emptiest; default: the setting default_cluster"),
    Field("priority", count(-_PRIORITY_MAX, _PRIORITY_MAX), "Jobs of a higher priority start first. Default 0.",
          "priority", ("--priority",), "N", "jobs of a higher priority start first; default 0", default=True),
)  # fmt: skip

ROLE: Final = (
    Field("instances", count(1, TASKS_MAX), "How many tasks: `worker-0`, `worker-1`, … Default 1.", "instances"),
    Field("processes", count(1, PROCESSES_MAX), "Processes of each instance. Default 1.", "processes"),
    Field("gpus", count(0, PROCESSES_MAX), "GPUs of each instance; none where the cluster has none. Default 0.", "gpus"),
    Field("cpus", count(1, _CORES_MAX), "Cores of each instance.", "cpus", nullable=True),
    Field("memory_bytes", SIZE, "Memory of each instance.", "memory", nullable=True),
    Field("image", IMAGE, "Its container image. Default: the job's.", "image", nullable=True),
    Field("completion", choice("all", "any", "none"),
          "When the role is done: with all its instances, with any one, or (none) when the other roles are. Default all.",
          "completion"),
    Field("min_failed", count(1, TASKS_MAX), "So many failed instances fail the job. Default by completion.",
          "min_failed", nullable=True),
    Field("min_succeeded", count(1, TASKS_MAX), "So many succeeded instances are enough. Default by completion.",
          "min_succeeded", nullable=True),
)  # fmt: skip

RETRY: Final = (
    Field("max", count(0, RETRIES_MAX), "Tries beyond the first that a failure of the program may cost.", "max",
          ("--retry",), "N", "try a failed job again, N times at most; default 0"),
    Field("total_max", count(0, RETRIES_MAX), "Tries in all, whatever failed.", "total"),
    Field("backoff_s", seconds(zero=True), "Pause before the second try; it doubles. Default 10s.", "backoff"),
    Field("backoff_max_s", seconds(zero=True), "Longest pause. Default 10m.", "backoff_max"),
    Field("on", choice("cause", "any"), "Which failures: those whose cause is worth it, or any.", "on",
          ("--retry-on",), "WHICH", "any: after every failure; cause (default): only where it may help"),
)  # fmt: skip

# what the options of RETRY are called among the values of a command line
RETRY_OPTIONS: Final = {"max": "retry", "on": "retry_on"}


def options() -> Iterator[tuple[str, Field]]:
    """(name among the values of a command line, field) of every field that is an option."""
    for field in JOB:
        if field.option:
            yield field.name, field
    for field in RETRY:
        if field.option:
            yield RETRY_OPTIONS[field.name], field


def by_name(name: str) -> Field:
    return next(field for field in JOB if field.name == name)


def by_key(fields: tuple[Field, ...]) -> dict[str, str]:
    """Key of a file → name in a JobSpec."""
    return {field.key: field.name for field in fields if field.key}


# -- reading a text


def read(rule: Rule, text: str, name: str) -> Any:
    """The value of an option, `name`, as it was typed; of several tags, one."""
    if rule.what in ("count", "seconds", "bytes"):
        from headway.settings import quantity

        if rule.what == "count":
            return quantity.count(text, name, least=int(rule.least), most=int(rule.most))
        if rule.what == "bytes":
            return quantity.size_bytes(text, name)
        return quantity.duration_s(text, name, allow_zero=not rule.least)
    if rule.what == "choice":
        return _chosen(rule, text, name)
    check_one = {"name": _check_name, "image": check_image, "tags": check_tag}[rule.what]
    try:
        check_one(text)
    except UsageError as error:
        raise UsageError(f"{name}: {error.message}", error.hint) from None
    return text


def _chosen(rule: Rule, value: Any, name: str) -> str:
    if value in rule.choices:
        return str(value)
    from headway.settings.nearest import did_you_mean

    raise UsageError(
        f'{name}: "{str(value)[:60]}" is not one of {", ".join(rule.choices)}'
        f"{did_you_mean(str(value), rule.choices)}"
    )


# -- checking a value of a request


def check(field: Field, value: Any, name: str = "") -> Any:
    """A value that came as JSON, in its own type. `name`: what an error calls it."""
    name, rule = name or field.name, field.rule
    if value is None and field.nullable:
        return None
    if rule.what == "flag":
        if not isinstance(value, bool):
            raise UsageError(f"{name} is true or false")
        return value
    if rule.what in ("count", "bytes"):
        return whole(name, value, int(rule.least), int(rule.most))
    if rule.what == "seconds":
        return _seconds(field, name, value)
    if rule.what == "choice":
        return _chosen(rule, value, name)
    if rule.what == "tags":
        return tags(value)
    if not isinstance(value, str):
        raise UsageError(f"{name} is not text: {value!r:.80}")
    _check_name(value) if rule.what == "name" else check_image(value)
    return value


def whole(name: str, value: Any, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name} is not a whole number: {value!r:.80}")
    if not least <= value <= most:
        raise UsageError(
            f"{name} is {value if abs(value) < 1 << 64 else 'far too large'}",
            f"valid: {least} to {most}",
        )
    return value


def _seconds(field: Field, name: str, value: Any) -> float:
    import math

    rule = field.rule
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise UsageError(f"{name} is not a number of seconds: {value!r:.80}")
    option = field.option[0] if field.option else name
    if value == 0 and rule.least:
        raise UsageError(f"{name} is 0: a job needs some time", f"for example: {option} 3.5h")
    if not rule.least <= value <= rule.most:
        from headway.settings.quantity import duration_text

        longest = duration_text(rule.most)
        raise UsageError(
            f"{name} is {value:g} s", f"valid: 0 to {rule.most:g} s, at most {option} {longest}"
        )
    return float(value)


def tags(value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise UsageError(f"tags is not a list of texts: {value!r:.80}")
    if len(value) > TAGS_MAX:
        raise UsageError(f"{len(value)} tags are too many", f"at most {TAGS_MAX}")
    for tag in value:
        check_tag(tag)
    return list(value)


def check_tag(tag: str) -> None:
    if not tag.strip() or len(tag) > TAG_CHARS_MAX or not tag.isprintable():
        raise UsageError(
            f"{tag[:60]!r} is not a tag", f"a tag is 1 to {TAG_CHARS_MAX} printable characters"
        )


def check_image(text: str) -> None:
    bad = not text or text.startswith("-") or not text.isprintable() or " " in text
    if bad or len(text) > _IMAGE_CHARS_MAX:
        raise UsageError(
            f"{text[:60]!r} is not the name of an image", "for example: --image pytorch:2.13"
        )


def check_role(name: str) -> None:
    """Names of roles become names of tasks, folders and variables."""
    if not _ROLE_NAME.match(name) or len(name) > ROLE_NAME_CHARS_MAX:
        raise UsageError(
            f"{name[:80]!r} is not the name of a role",
            f"lower-case letters, digits and '-', at most {ROLE_NAME_CHARS_MAX}, such as worker",
        )


def _check_name(name: str) -> None:
    from headway.model.ids import check_name

    check_name(name)
