"""Named clusters: `clusters:` in a settings file, and what each engine may be told there. Called by
layers and server.

A definition is a plain mapping with `engine` and that engine's options, all of them checked and
written out, none of them secret. It travels with each job, so the server needs no project file and
two projects may use one name for two things (`docs/decisions/007-cluster-definitions.md`). A new
engine adds its table here and its line in the registry.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from headway.model.errors import UsageError
from headway.model.ids import check_name
from headway.model.json_types import JsonMapping, JsonObject
from headway.model.limits import CLUSTER_WORDS_MAX, CLUSTERS_MAX
from headway.settings import quantity
from headway.settings.nearest import did_you_mean

HERE: Final = "here"  # always there: this machine
AUTO: Final = "auto"  # not a cluster: the emptiest one
LOCAL: Final = "local"
Definition = JsonObject
Check = Callable[[Any, str], Any]


@dataclass(frozen=True, slots=True)
class Option:
    """One key of a definition. `check(value, field)` returns the value as it is stored."""

    type: str  # in words, for people
    doc: str
    check: Check
    default: Any = None


@dataclass(frozen=True, slots=True)
class Table:
    """What an engine is, and the options that it has."""

    doc: str
    options: Mapping[str, Option]
    # True: a job gets the submitter's environment; False: the image's, and what was named
    takes_environment: bool
    # a job can run from a snapshot of the code; where its nodes have other disks, it always does
    takes_snapshot: bool = True
    of_job: tuple[str, ...] = ()  # options that a job may have otherwise: `options` of a job file


def _web_address(value: object, field: str) -> str:
    text = _text(value, field)
    if not text.startswith(("http://", "https://")) or not text.isprintable() or " " in text:
        raise UsageError(
            f'{field}: "{text[:80]}" is not an address',
            "for example: https://grafana.lab/d/slurm?var-job={engine_id}",
        )
    return text


def _text(value: object, field: str) -> str:
    if not isinstance(value, str) or not value or "\0" in value or len(value) > 1024:
        raise UsageError(
            f"{field}: {value!r:.60} is not a text", "write it in quotes if it looks like a number"
        )
    return value


def _words(value: object, field: str) -> list[str]:
    """A list of words; one text is a list of one."""
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or len(words) > CLUSTER_WORDS_MAX:
        raise UsageError(
            f"{field}: {value!r:.60} is not a list of at most {CLUSTER_WORDS_MAX} words"
        )
    return [_text(word, field) for word in words]


def _command(value: object, field: str) -> list[str]:
    found = _words(value, field)
    if not found or found[0].startswith("-"):
        raise UsageError(
            f"{field}: {value!r:.60} does not start with a program", "for example: [sudo, docker]"
        )
    return found


def _mounts(value: object, field: str) -> list[str]:
    found = _words(value, field)
    for mount in found:
        parts = mount.split(":")
        if (
            len(parts) not in (2, 3)
            or not all(p.startswith("/") for p in parts[:2])
            or parts[2:] not in ([], ["ro"])
        ):
            raise UsageError(
                f'{field}: "{mount[:80]}" is not FOLDER:FOLDER or FOLDER:FOLDER:ro',
                "both folders are absolute: the one here, then the one in the container",
            )
    return found


def _names(value: object, field: str) -> list[str]:
    found = _words(value, field)
    for name in found:
        if "=" in name:
            raise UsageError(
                f"{field}: names of variables stand here, not values",
                "values: --env, or `secrets` in private.yaml",
            )
    return found


def _shared(value: object, field: str) -> str:
    text = _text(value, field)
    if not text.startswith(("/", "~/")):
        raise UsageError(
            f'{field}: "{text[:80]}" is not an absolute path, or one that begins with ~/'
        )
    return text


def _host(value: object, field: str) -> str:
    text = _text(value, field)
    if text.startswith("-") or not text.isprintable() or " " in text:
        raise UsageError(
            f'{field}: "{text[:80]}" is not the name of a host',
            "as you give it to ssh: login.lab or me@lab",
        )
    return text


def _size(value: object, field: str) -> int:
    return quantity.size_bytes(_one(value, field), field, least_bytes=4096)


def _gpus(value: object, field: str) -> int:
    return quantity.count(_one(value, field), field, least=0, most=1024)


def _one(value: object, field: str) -> quantity.Given:
    if isinstance(value, str | int | float):
        return value
    raise UsageError(
        f"{field}: a {'list' if isinstance(value, list) else 'mapping'} stands where one value should"
    )


def _agent(value: object, field: str) -> str:
    if value not in ("auto", "inside", "outside"):
        raise UsageError(f"{field}: {value!r:.60} is not one of auto, inside, outside")
    return str(value)


def _user(value: object, field: str) -> str:
    text = str(value) if isinstance(value, int) else _text(value, field)
    parts = text.split(":")
    if text not in ("submitter", "image") and not (
        len(parts) <= 2 and all(part.isdigit() for part in parts)
    ):
        raise UsageError(
            f'{field}: "{text[:60]}" is not submitter, image or a number such as 1000:1000'
        )
    return text


# of every engine; what is not given is not stored either, so that definitions stay as they were
_COMMON: Final = {
    "url": Option(
        "an address",
        "A job's page in another system; `{engine_id}` and `{id}` stand for its ids. Shown by `hw q`.",
        _web_address,
    ),
}

_CONTAINER: Final = {
    "image": Option("a text", "Image of jobs that name none.", _text),
    "network": Option(
        "a text", "none, bridge, host or the name of a network. Default: the engine's own.", _text
    ),
    "mounts": Option(
        "a list", "Further folders, `FOLDER:FOLDER` or `FOLDER:FOLDER:ro`.", _mounts, ()
    ),
    "gpus": Option(
        "a whole number", "GPUs that jobs may use. Default: what the driver tells (NVML).", _gpus
    ),
    "shm": Option("a size", "Size of /dev/shm, which data loaders need.", _size, 1024**3),
    "user": Option("submitter, image or UID:GID", "Whom the job runs as.", _user, "submitter"),
    "python": Option(
        "a text",
        "The Python in the image that runs the agent. Default: python3, then python.",
        _text,
    ),
    "agent": Option(
        "auto, inside or outside", "Where the agent runs. See the guide.", _agent, "auto"
    ),
    "pass_env": Option("a list", "Variables of the submitter that jobs get too.", _names, ()),
    "run_options": Option("a list", "Further words for the engine's `create`.", _words, ()),
}

_SLURM: Final = {
    "host": Option("a text", "Login node: everything goes there over ssh. Default: Slurm's commands are here.", _host),
    "folder": Option(
        "a path", "Folder that the nodes see too. Default: below the home; with `host`: ~/.headway there.", _shared
    ),
    "python": Option("a text", "The Python on the nodes for the agent. Default: the one that runs Headway.", _text),
    "pass_env": Option("a list", "With `host`: variables of the submitter that jobs get too.", _names, ()),
    "gpu_per_node": Option("a whole number", "GPUs of each node. Default: what Slurm tells.", _gpus),
    "gpu_type": Option("a text", "Type of GPU to ask for, as in `gpu:a100:4`.", _text),
    "partition": Option("a text", "`--partition`.", _text),
    "account": Option("a text", "`--account`.", _text),
    "qos": Option("a text", "`--qos`.", _text),
    "constraint": Option("a text", "`--constraint`.", _text),
    "reservation": Option("a text", "`--reservation`.", _text),
    "nodelist": Option("a text", "`--nodelist`.", _text),
    "exclude": Option("a text", "`--exclude`.", _text),
    "extra": Option("a list", "Further options of sbatch, such as `--exclusive` or `--nice=100`.", _words, ()),
}  # fmt: skip
_SLURM_JOB: Final = (
    "partition", "account", "qos", "constraint", "reservation", "nodelist", "exclude", "gpu_type", "extra",
)  # fmt: skip

TABLES: Final[Mapping[str, Table]] = {
    LOCAL: Table("Processes on this machine.", _COMMON, takes_environment=True),
    "docker": Table(
        "Containers of the Docker engine on this machine.",
        {
            "command": Option("a list", "The program and its own options.", _command, ("docker",)),
            **_CONTAINER,
            **_COMMON,
        },
        takes_environment=False,
        takes_snapshot=False,
    ),
    "slurm": Table(
        "Batch jobs of a Slurm cluster.",
        {**_SLURM, **_COMMON},
        takes_environment=True,
        of_job=_SLURM_JOB,
    ),
    "podman": Table(
        "Containers of Podman on this machine.",
        {
            "command": Option("a list", "The program and its own options.", _command, ("podman",)),
            **_CONTAINER,
            **_COMMON,
        },
        takes_environment=False,
        takes_snapshot=False,
    ),
}


def parse(
    value: object, field: str, where: Callable[[tuple[str, ...]], str] | None = None
) -> dict[str, Definition]:
    """The mapping `clusters:`. `where` tells the file and line of a path of keys."""
    if not isinstance(value, dict):
        raise UsageError(
            f"{field}: is a mapping of names to clusters", "for example: {box: {engine: docker}}"
        )
    if len(value) > CLUSTERS_MAX:
        raise UsageError(f"{field}: {len(value)} clusters are too many: at most {CLUSTERS_MAX}")
    found = {}
    for name, given in value.items():
        place = where((str(name),)) if where else field
        if name == AUTO:
            raise UsageError(
                f'{place}: "{AUTO}" means the emptiest cluster; give this one another name'
            )
        try:
            check_name(name)
        except UsageError as error:
            raise UsageError(f"{place}: {error.message}", error.hint) from None
        found[name] = definition(
            given, f"{place}: {name}", partial(_line_of, where, name) if where else None
        )
    return found


def _line_of(where: Callable[[tuple[str, ...]], str], name: str, key: str) -> str:
    return where((name, key))


def definition(value: object, field: str, where: Callable[[str], str] | None = None) -> Definition:
    """One cluster, checked, with every default written out."""
    if not isinstance(value, Mapping) or "engine" not in value:
        raise UsageError(
            f"{field}: a cluster is a mapping with `engine`", f"engines: {', '.join(TABLES)}"
        )
    engine = value["engine"]
    table = TABLES.get(engine) if isinstance(engine, str) else None
    if table is None:
        raise UsageError(
            f"{field}: there is no engine {str(engine)[:60]!r}{did_you_mean(str(engine), TABLES)}",
            f"engines: {', '.join(TABLES)}",
        )
    found: Definition = {"engine": engine}
    for key in value:
        if key != "engine" and key not in table.options:
            place = where(key) if where else field
            raise UsageError(
                f'{place}: the engine {engine} has no option "{str(key)[:60]}"'
                f"{did_you_mean(str(key), ['engine', *table.options])}",
                f"its options: {', '.join(table.options) or 'none'}",
            )
    for key, option in table.options.items():
        given = value.get(key)
        if given is None and key in _COMMON:
            continue
        if given is None:
            found[key] = (
                list(option.default) if isinstance(option.default, tuple) else option.default
            )
        else:
            found[key] = option.check(given, f"{where(key) if where else field}: {key}")
    return found


def job_options(engine: str, given: JsonMapping, cluster: str) -> Definition:
    """`options` of a job, checked: those of its cluster that a job may have otherwise. null takes
    one away.
    """
    table = TABLES[engine]
    if not table.of_job:
        raise UsageError(f"the cluster {cluster} ({engine}) takes no `options`", "leave them out")
    for key in given:
        if key not in table.of_job:
            near = did_you_mean(str(key), table.of_job)
            raise UsageError(
                f'options: a job on {cluster} ({engine}) has no option "{str(key)[:60]}"{near}',
                f"its options: {', '.join(table.of_job)}",
            )
    checks = {key: table.options[key].check for key in given}
    return {
        key: None if value is None else checks[key](value, f"options.{key}")
        for key, value in given.items()
    }


def resolve(name: str, configured: Mapping[str, Definition]) -> Definition:
    """What a name means. Empty for `here` where nobody has defined it otherwise: the server's own
    machine.
    """
    if name in configured:
        return configured[name]
    if name == HERE:
        return {}
    names = [*configured, *([HERE] if HERE not in configured else [])]
    raise UsageError(
        f"there is no cluster {name[:80]!r}{did_you_mean(name, [*names, AUTO])}",
        f"clusters: {', '.join(sorted(names))}; a new one stands under `clusters:` in headway.yaml",
    )


def takes_environment(found: JsonMapping) -> bool:
    """Whether jobs there get the submitter's environment. Behind ssh paths and homes are others."""
    return TABLES[found.get("engine", LOCAL)].takes_environment and not found.get("host")


def takes_snapshot(found: JsonMapping) -> bool:
    """Whether jobs there can run from a snapshot of the code."""
    return TABLES[found.get("engine", LOCAL)].takes_snapshot
