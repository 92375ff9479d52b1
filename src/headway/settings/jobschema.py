"""Every key of a job file in one table: plain fields from `job_fields.py`, and those with a shape
of their own. From it come the checks, the JSON Schema for editors and the reference page.

`jobfile.py` turns what was read into a submission; `tools/reference.py` writes
docs/reference/job.schema.json and job-file.md; `hw config --job-schema` prints the schema.
"""

import re
from collections.abc import Iterator
from typing import Final

from headway.model.errors import UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import (
    ARRAY_JOBS_MAX,
    FOLDERS_MAX,
    PARAMETERS_MAX,
    PROCESSES_MAX,
    ROLES_MAX,
    TAGS_MAX,
)
from headway.settings import job_fields
from headway.settings.value_kinds import (
    NAME,
    Choice,
    Either,
    Key,
    ListOf,
    MapOf,
    Scalar,
    Section,
    Text,
    count,
    duration,
    of_rule,
)

INDEX: Final = "index"  # `{{ index }}`: the job's number in its array
MATRIX_WORDS: Final = ("include", "exclude")
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


def _keys(fields: tuple[job_fields.Field, ...]) -> Iterator[Key]:
    for field in fields:
        if field.key:
            yield Key(field.key, of_rule(field.rule), field.doc)


def _plain(*names: str) -> Iterator[Key]:
    """The keys of plain fields of a job, in this order."""
    by_name = {key.name: key for key in _keys(job_fields.JOB)}
    for name in names:
        yield by_name[name]


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
        *_keys(job_fields.ROLE),
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
RETRY: Final = Section(tuple(_keys(job_fields.RETRY)))
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
        *_plain("name"),
        Key("command", COMMAND, "What to run: a text, split into words as a shell would but without one; or a list."),
        Key("parameters", PARAMETERS, "Values for `{{ name }}` in texts of this file; `--set name=value` changes one."),
        Key("cwd", Text(), "The folder that it runs in, from this file's own. Default: this file's folder."),
        Key("gpus", count(1, PROCESSES_MAX), "GPUs with one process each, as `-n`; processes where there are none."),
        Key("processes", count(1, PROCESSES_MAX), "The same as `gpus`, for jobs that need none."),
        *_plain("gpu_per_node", "nodes", "multi_process", "launcher"),
        Key("roles", MapOf(ROLE, "role names", ROLES_MAX, job_fields.check_role), "Several kinds of tasks in one job."),
        *_plain("cpus", "memory", "time", "grace", "monitoring_interval"),
        Key("env", ENV, "Variables for the job."),
        Key("secrets", VARIABLES, "Variables whose values come from the private file, the environment or a keyring."),
        *_plain("image"),
        Key("code", CODE, "Which files belong to a snapshot of the code."),
        Key("folders", FOLDERS, "Data that it finds as `./NAME`."),
        Key("retry", RETRY, "How often it is tried again."),
        *_plain("hold", "on_hang", "pty"),
        Key("smoke", SMOKE, "What `--smoke` changes for a small trial run."),
        *_plain("experiment", "tags", "cluster", "priority"),
        Key("after", ListOf(Text("the id of a job"), TAGS_MAX), "Jobs that must have succeeded before."),
        Key("options", MapOf(OPTION, "names", TAGS_MAX), "Options of the engine, such as the partition of Slurm."),
        Key("array", ARRAY, "Many jobs that differ in `{{ index }}` and HEADWAY_ARRAY_INDEX."),
        Key("matrix", MATRIX, "One job for each combination of these parameters; `include` and `exclude` are rows."),
    )
)  # fmt: skip

DEFAULTS: Final = Section(
    (
        *_keys(tuple(field for field in job_fields.JOB if field.default)),
        Key("env", ENV, "Variables for the job."),
        Key("retry", RETRY, "How often it is tried again."),
    )
)


def json_schema() -> JsonObject:
    """For editors: completion and checks while a person types."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Headway job file",
        "description": "What `hw submit job.yaml` reads; also the section `job` of headway.yaml.",
        **JOB.schema(),
    }
