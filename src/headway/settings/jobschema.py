"""Every key of a job file in one table. From it come the checks, the JSON Schema for editors and
the reference page.

`jobfile.py` turns what was read into a submission; `tools/reference.py` writes
docs/reference/job.schema.json and job-file.md; `hw config --job-schema` prints the schema.
"""

import re
from typing import Final

from headway.model.engine_words import LAUNCHERS, ON_HANG
from headway.model.errors import UsageError
from headway.model.ids import check_name
from headway.model.json_types import JsonObject
from headway.model.limits import (
    ARRAY_JOBS_MAX,
    FOLDERS_MAX,
    NODES_MAX,
    PARAMETERS_MAX,
    PROCESSES_MAX,
    RETRIES_MAX,
    ROLES_MAX,
    TAG_CHARS_MAX,
    TAGS_MAX,
)
from headway.settings.value_kinds import (
    NAME,
    SIZE,
    Choice,
    Either,
    Flag,
    Key,
    ListOf,
    MapOf,
    Scalar,
    Section,
    Text,
    count,
    duration,
)

INDEX: Final = "index"  # `{{ index }}`: the job's number in its array
MATRIX_WORDS: Final = ("include", "exclude")
_ROLE = re.compile(r"[a-z][a-z0-9-]{0,31}\Z")
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")
_WORDS_MAX: Final = 10_000


def check_variable(name: str) -> None:
    if not name or "=" in name or "\0" in name or len(name) > 256:
        raise UsageError(f"{name[:60]!r} is not the name of an environment variable")


def check_parameter(name: str) -> None:
    if not _PARAMETER.match(name) or name == INDEX:
        taken = " (it is the job's number in an array)" if name == INDEX else ""
        raise UsageError(
            f"{name[:60]!r} cannot be a parameter's name{taken}", "use letters, digits, '_' and '-'"
        )


def _check_role(name: str) -> None:
    if not _ROLE.match(name):
        raise UsageError(
            f"{name[:60]!r} cannot be a role's name",
            "use small letters, digits and '-', such as worker",
        )


def check_folder(name: str) -> None:
    parts = name.split("/")
    if (
        not name
        or name.startswith("/")
        or "\\" in name
        or "\0" in name
        or any(p in ("", ".", "..") for p in parts)
    ):
        raise UsageError(
            f"{name[:60]!r} is not a folder below the job's own", "for example: data, or out/models"
        )


def _check_tag(tag: str) -> None:
    if not tag.strip() or len(tag) > TAG_CHARS_MAX or not tag.isprintable():
        raise UsageError(
            f"{tag[:60]!r} is not a tag", f"a tag is 1 to {TAG_CHARS_MAX} printable characters"
        )


WORDS: Final = ListOf(Scalar("a word", as_text=True), _WORDS_MAX)
COMMAND: Final = Either(
    {str: Text("a command line, split into words as a shell would, without one"), list: WORDS}
)
ENV: Final = MapOf(Scalar(as_text=True), "names", 1_000, check_variable)
PARAMETERS: Final = MapOf(
    Scalar("a text, a number, true, false, or null: to be given by --set", nothing=True),
    "names",
    PARAMETERS_MAX,
    check_parameter,
)
VARIABLES: Final = ListOf(Text("the name of a variable", check_variable), TAGS_MAX)

OPTION: Final = Either(
    {
        **dict.fromkeys((str, int, float, bool, type(None)), Scalar("a value", nothing=True)),
        list: WORDS,
    }
)

ROLE: Final = Section(
    (
        Key("command", COMMAND, "What this role runs. Default: the job's command."),
        Key(
            "instances",
            count(1, PROCESSES_MAX),
            "How many tasks: `worker-0`, `worker-1`, … Default 1.",
        ),
        Key("processes", count(1, PROCESSES_MAX), "Processes of each instance. Default 1."),
        Key(
            "gpus",
            count(0, PROCESSES_MAX),
            "GPUs of each instance; none where the cluster has none. Default 0.",
        ),
        Key("cpus", count(1, 1 << 20), "Cores of each instance."),
        Key("memory", SIZE, "Memory of each instance."),
        Key("image", Text(), "Its container image. Default: the job's."),
        Key(
            "completion",
            Choice(("all", "any", "none")),
            "When the role is done: with all its instances, with any one, or (none) when the other roles are. "
            "Default all.",
        ),
        Key(
            "min_failed",
            count(1, PROCESSES_MAX),
            "So many failed instances fail the job. Default by completion.",
        ),
        Key(
            "min_succeeded",
            count(1, PROCESSES_MAX),
            "So many succeeded instances are enough. Default by completion.",
        ),
    )
)
FOLDER: Final = Section(
    (
        Key(
            "from",
            Text(),
            "Address, or path from this file, that it is fetched from before the start.",
        ),
        Key(
            "to",
            Text(),
            "Address, or path from this file, that it is sent to while the job runs and at its end.",
        ),
        Key(
            "account",
            NAME,
            "Name of the storage account in the settings. Default: the only one of its kind.",
        ),
        Key("mode", Choice(("ro", "rw")), "ro: the job cannot change it. Default rw."),
        Key(
            "mount",
            Choice(("blobfuse2", "rclone", "s3fs")),
            "Mount it with this tool in place of copying.",
        ),
        Key("options", WORDS, "For the mount tool."),
    )
)
FOLDERS: Final = MapOf(FOLDER, "folders", FOLDERS_MAX, check_folder)
RETRY: Final = Section(
    (
        Key(
            "max",
            count(0, RETRIES_MAX),
            "Tries beyond the first that a failure of the program may cost.",
        ),
        Key("total", count(1, RETRIES_MAX), "Tries in all, whatever failed."),
        Key(
            "backoff",
            duration(allow_zero=True),
            "Pause before the second try; it doubles. Default 10s.",
        ),
        Key("backoff_max", duration(allow_zero=True), "Longest pause. Default 10m."),
        Key(
            "on", Choice(("cause", "any")), "Which failures: those whose cause is worth it, or any."
        ),
    )
)
CODE: Final = Section(
    (
        Key(
            "include",
            ListOf(Text("a pattern"), TAGS_MAX),
            "Files taken although something ignores them, beside those of the setting `code.include`.",
        ),
        Key(
            "exclude",
            ListOf(Text("a pattern"), TAGS_MAX),
            "Files left out, beside those of the setting `code.exclude`; stronger than `include`.",
        ),
    )
)
SMOKE: Final = Section(
    (
        Key("parameters", PARAMETERS, "Other values of parameters."),
        Key("arguments", WORDS, "Words that are added to the command."),
        Key("gpus", count(1, PROCESSES_MAX), "Another number of GPUs."),
        Key("processes", count(1, PROCESSES_MAX), "The same as `gpus`."),
        Key("env", ENV, "Further or other variables."),
        Key("time", duration(), "Another longest time."),
    )
)
ARRAY: Final = Either(
    {
        int: count(1, ARRAY_JOBS_MAX),
        str: Text('a range such as "0-9", "0-90:10" or "1,4,7-9"'),
        list: ListOf(count(0, 10**9), ARRAY_JOBS_MAX),
    }
)
_ROW: Final = MapOf(Scalar(), "parameters", PARAMETERS_MAX, check_parameter)


class _Matrix(MapOf):
    """Names to lists of values; `include` and `exclude` are lists of rows."""

    def schema(self) -> JsonObject:
        rows = ListOf(_ROW, ARRAY_JOBS_MAX).schema()
        return super().schema() | {"properties": dict.fromkeys(MATRIX_WORDS, rows)}


MATRIX: Final = _Matrix(
    Either(
        {
            list: ListOf(
                Either({str: Scalar(), int: Scalar(), float: Scalar(), bool: Scalar(), dict: _ROW}),
                10_000,
            )
        }
    ),
    "parameters",
    PARAMETERS_MAX,
    check_parameter,
)

JOB: Final = Section(
    (
        Key("name", Text("a name", check_name), "The job's name. Default: after the script."),
        Key("command", COMMAND, "What to run: a text, split into words as a shell would but without one; or a list."),
        Key("parameters", PARAMETERS, "Values for `{{ name }}` in texts of this file; `--set name=value` changes one."),
        Key("cwd", Text(), "The folder that it runs in, from this file's own. Default: this file's folder."),
        Key("gpus", count(1, PROCESSES_MAX), "GPUs with one process each, as `-n`; processes where there are none."),
        Key("processes", count(1, PROCESSES_MAX), "The same as `gpus`, for jobs that need none."),
        Key("gpu_per_node", count(1, 1_024), "GPUs of one node. Default: the cluster's own."),
        Key("nodes", count(1, NODES_MAX), "Nodes that the processes are spread over. Default: as few as will do."),
        Key("multi_process", Flag(), "true: one process per GPU; false: one per node. Default true."),
        Key("launcher", Choice(LAUNCHERS), "Who starts the processes: `ranks` (Headway; default) or `mpirun`."),
        Key("roles", MapOf(ROLE, "role names", ROLES_MAX, _check_role), "Several kinds of tasks in one job."),
        Key("cpus", count(1, 1 << 20), "Cores that the job needs."),
        Key("memory", SIZE, "Memory that the job needs."),
        Key("time", duration(), "The job is stopped after this time."),
        Key("grace", duration(allow_zero=True), "Time between SIGTERM and SIGKILL."),
        Key("env", ENV, "Variables for the job."),
        Key("secrets", VARIABLES, "Variables whose values come from the private file, the environment or a keyring."),
        Key("image", Text(), "Container image, for engines with containers."),
        Key("code", CODE, "Which files belong to a snapshot of the code."),
        Key("folders", FOLDERS, "Data that it finds as `./NAME`."),
        Key("retry", RETRY, "How often it is tried again."),
        Key("hold", duration(allow_zero=True), "How long a failed task is kept, for a person to enter it."),
        Key("on_hang", Choice(ON_HANG), "What a hang is answered with; `stacks`: keep them, tell nobody. Default notify."),
        Key("pty", Flag(), "true: stdout and stderr are terminals, for programs that draw only on one. Default false."),
        Key("smoke", SMOKE, "What `--smoke` changes for a small trial run."),
        Key("experiment", Text("a name", check_name), "The experiment, a named group of jobs."),
        Key("tags", ListOf(Text("a tag", _check_tag), TAGS_MAX), "Tags."),
        Key("cluster", NAME, "The cluster. Default: the setting default_cluster."),
        Key("priority", count(-1_000_000, 1_000_000), "Jobs of a higher priority start first. Default 0."),
        Key("after", ListOf(Text("the id of a job"), TAGS_MAX), "Jobs that must have succeeded before."),
        Key("options", MapOf(OPTION, "names", TAGS_MAX), "Options of the engine, such as the partition of Slurm."),
        Key("array", ARRAY, "Many jobs that differ in `{{ index }}` and HEADWAY_ARRAY_INDEX."),
        Key("matrix", MATRIX, "One job for each combination of these parameters; `include` and `exclude` are rows."),
    )
)  # fmt: skip


def json_schema() -> JsonObject:
    """For editors: completion and checks while a person types."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Headway job file",
        "description": "What `hw submit job.yaml` reads; also the section `job` of headway.yaml.",
        **JOB.schema(),
    }
