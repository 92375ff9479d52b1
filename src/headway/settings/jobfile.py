"""A job file, or the section `job` of headway.yaml, as what the server is asked for. For `hw
submit` and `hw run`.

`load` reads and checks the file by the table of `jobschema.py`. `prepare` fills in parameters and
makes the jobs of an array. What only the server can know (clusters, what nodes have) is checked
there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headway.model.errors import UsageError
from headway.model.json_types import JsonMapping, JsonObject
from headway.settings import data_folders, job_fields, sweep, template, yamlfile
from headway.settings.jobschema import INDEX, JOB, MATRIX_WORDS
from headway.settings.nearest import did_you_mean
from headway.settings.yamlfile import Node

SECTION: Final = "job"
# where {{ }} may stand
_FILLED: Final = ("name", "command", "roles", "env", "image", "folders", "experiment", "tags")
# key of the file → field of a JobSpec
_SAME: Final = {
    **job_fields.by_key(job_fields.JOB),
    **{key: key for key in ("command", "options", "after")},
}
_RETRY: Final = job_fields.by_key(job_fields.RETRY)
_ROLE: Final = job_fields.by_key(job_fields.ROLE)


@dataclass(slots=True)
class JobFile:
    path: Path
    values: JsonObject  # checked, by the keys of the table; commands are lists of words
    root: Node  # the same with lines

    def at(self, key: str, *below: str | int) -> str:
        """How an error names a key: `job.yaml, line 3: smoke.gpus`. The line is that of what stands
        `below` it.
        """
        node = self.root
        for step in (*key.split("."), *below):
            inner = node.value
            if isinstance(inner, dict) and step in inner:
                node = inner[str(step)]
            elif isinstance(inner, list) and isinstance(step, int) and step < len(inner):
                node = inner[step]
            else:
                break
        return f"{self.path}, line {node.line}: {key}"


@dataclass(slots=True)
class Element:
    """One job of an array: what it has of its own."""

    index: int
    spec: JsonObject
    env: dict[str, str]


@dataclass(slots=True)
class Prepared:
    """What a job file asks for, in the fields of a JobSpec."""

    spec: JsonObject
    env: dict[str, str] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    code: dict[str, list[str]] | None = None  # include and exclude, for a snapshot
    elements: list[Element] = field(default_factory=list)  # empty: one job


def load(path: Path) -> JobFile:
    root = yamlfile.read(path)
    if isinstance(root.value, dict) and SECTION in root.value:
        root = root.value[SECTION]
    elif path.name == "headway.yaml":
        raise UsageError(
            f"{path} has no section `{SECTION}`", "a job file has another name, or add the section"
        )
    values = JOB.read(root, f"{path}, line {root.line}")
    found = JobFile(path, values, root)
    _split_commands(found)
    return found


def _split_commands(file: JobFile) -> None:
    values = file.values
    if "command" in values:
        values["command"] = template.words(values["command"], file.at("command"))
        if not values["command"]:
            raise UsageError(
                f"{file.at('command')}: there is no command to run", "for example: python train.py"
            )
    for name, role in values.get("roles", {}).items():
        if "command" in role:
            role["command"] = template.words(role["command"], file.at(f"roles.{name}.command"))
        elif "command" not in values:
            raise UsageError(
                f"{file.at(f'roles.{name}')}: it has no command, and the job has none either"
            )
    if "command" not in values and not values.get("roles"):
        raise UsageError(
            f"{file.path}, line {file.root.line}: a job needs a command",
            "for example: command: python train.py",
        )
    if values.get("gpus", values.get("processes")) != values.get("processes", values.get("gpus")):
        raise UsageError(
            f"{file.at('processes')}: gpus is {values['gpus']} and this is another number",
            "keep one",
        )


# -- parameters


def prepare(
    file: JobFile,
    sets: Sequence[tuple[str, str]] = (),
    *,
    smoke: bool = False,
    array: str | None = None,
) -> Prepared:
    values = _smoke(file) if smoke else dict(file.values)
    if array is not None:
        values |= {"array": array}
        values.pop("matrix", None)
    parameters, matrix, changes = _parameters(file, values, sets, smoke)
    rows = _rows(file, values, matrix, changes, smoke)
    _check_names(file, values, parameters, matrix, indexed=rows[0][0] is not None)
    first = {**parameters, **rows[0][1]}
    prepared = _prepared(
        file, template.fill({k: v for k, v in values.items() if k in _FILLED}, first), values, first
    )
    prepared.spec |= {"smoke": True} if smoke else {}
    if rows[0][0] is not None:
        prepared.elements = _elements(file.path.parent.absolute(), values, parameters, rows)
    return prepared


def _smoke(file: JobFile) -> JsonObject:
    if "smoke" not in file.values:
        raise UsageError(
            f"{file.path} has no section `smoke`, which says what --smoke changes",
            "for example: smoke: {arguments: [--num_epochs=1], gpus: 1}",
        )
    smoke, values = file.values["smoke"], dict(file.values)
    if "arguments" in smoke:
        values["command"] = [*values.get("command", []), *smoke["arguments"]]
    size = smoke.get("gpus", smoke.get("processes"))
    if size is not None:
        values = {k: v for k, v in values.items() if k not in ("processes", "nodes")} | {
            "gpus": size
        }
    if "time" in smoke:
        values["time"] = smoke["time"]
    values["env"] = {**values.get("env", {}), **smoke.get("env", {})}
    return values


def _parameters(
    file: JobFile, values: JsonMapping, sets: Sequence[tuple[str, str]], smoke: bool
) -> tuple[JsonObject, dict[str, list[Any]], JsonObject]:
    """Values by name (file < smoke < --set), the matrix, and what was changed: it takes the place
    of an axis.
    """
    matrix = {name: list(axis) for name, axis in values.get("matrix", {}).items()}
    axes = {name: axis for name, axis in matrix.items() if name not in MATRIX_WORDS and axis}
    defaults = {**{name: axis[0] for name, axis in axes.items()}, **values.get("parameters", {})}
    for name, axis in axes.items():
        for value in axis:
            if not isinstance(value, dict):
                _check_type(value, defaults[name], file.at(f"matrix.{name}"))
    found = dict(defaults)
    small: JsonObject = file.values.get("smoke", {}).get("parameters", {})
    for name, value in small.items():  # also without --smoke: it is wrong now as later
        _check_known(name, defaults, file.at("smoke.parameters", name))
        _check_type(value, defaults[name], file.at(f"smoke.parameters.{name}"))
    changes = dict(small) if smoke else {}
    for name, text in sets:
        _check_known(name, defaults, "--set")
        changes[name] = template.typed(text, defaults[name], f"--set {name}")
    found |= changes
    return found, matrix, changes


def _check_known(name: str, known: JsonMapping, where: str) -> None:
    if name not in known:
        names = ", ".join(known) or "none"
        raise UsageError(
            f'{where}: there is no parameter "{name[:60]}"{did_you_mean(name, known)}',
            f"parameters: {names}",
        )


def _check_type(value: object, like: object, where: str) -> None:
    if not template.same_type(value, like):
        raise UsageError(
            f"{where}: {value!r:.60} is not {template.kind_words(like)}",
            f"its first value: {like!r:.60}",
        )


def _rows(
    file: JobFile,
    values: JsonMapping,
    matrix: dict[str, list[Any]],
    changes: sweep.Row,
    smoke: bool,
) -> list[tuple[int | None, sweep.Row]]:
    """(number, what it has of its own) of each job; the number is None where there is no array."""
    if matrix and "array" in values:
        raise UsageError(
            f"{file.at('array')}: a job file has either an array or a matrix", "keep one of them"
        )
    if matrix:
        rows = sweep.rows(matrix, file.at, changes)
        if smoke:
            return [(None, {**rows[0], INDEX: 0})]
        return [(index, {**row, INDEX: index}) for index, row in enumerate(rows)]
    if "array" in values:
        given = file.values.get("array") is not values["array"]
        numbers = sweep.indices(values["array"], "--array" if given else file.at("array"))
        if smoke:
            return [(None, {INDEX: numbers[0]})]
        return [(number, {INDEX: number}) for number in numbers]
    return [(None, {})]


def _check_names(
    file: JobFile,
    values: JsonMapping,
    parameters: JsonMapping,
    matrix: JsonMapping,
    *,
    indexed: bool,
) -> None:
    """Every `{{ name }}` is a parameter with a value, and every parameter is used."""
    used: dict[str, str] = {}
    for key in _FILLED:
        for name in template.names(values.get(key)):
            used.setdefault(name, key)
    for key in ("command", "env"):  # what only a smoke run adds counts as a use
        for name in template.names([values.get(key), file.values.get("smoke", {})]):
            used.setdefault(name, key)
    for name, key in used.items():
        if name == INDEX and not (indexed or "array" in values or matrix):
            raise UsageError(
                f"{file.at(key)}: {{{{ index }}}} is for arrays",
                "add `array: 10`, or use --array 10",
            )
        if name != INDEX:
            _check_known(name, parameters, file.at(key))
        if name != INDEX and parameters[name] is None and name not in matrix:
            raise UsageError(
                f"{file.at(f'parameters.{name}')}: it has no value", f"give one: --set {name}=VALUE"
            )
    for name in parameters:
        if name not in used:
            where = file.at(f"{'matrix' if name in matrix else 'parameters'}.{name}")
            raise UsageError(
                f"{where}: nothing uses this parameter",
                f"write {{{{ {name} }}}} in the command, or remove it",
            )


# -- fields of a JobSpec


def _prepared(
    file: JobFile,
    filled: JsonMapping,
    values: JsonMapping,
    parameters: JsonMapping,
) -> Prepared:
    whole = {**values, **filled}
    spec = {target: whole[key] for key, target in _SAME.items() if key in whole}
    spec["cwd"] = str(_folder(file, whole.get("cwd", ".")))
    spec["parameters"] = {name: value for name, value in parameters.items() if name != INDEX}
    size = whole.get("gpus", whole.get("processes"))
    if size is not None:
        spec["processes"] = size
    if whole.get("nodes") == 1:
        spec["one_node"] = True
    if "roles" in whole:
        spec["roles"] = [_role(name, role, whole) for name, role in whole["roles"].items()]
        spec.setdefault("command", spec["roles"][0]["command"])
    if "folders" in whole:
        base = file.path.parent.absolute()
        spec["folders"] = [
            data_folders.fields(name, given, base) for name, given in whole["folders"].items()
        ]
    if "retry" in whole:
        spec["retry"] = {_RETRY[key]: value for key, value in whole["retry"].items()}
    env = whole.get("env", {})
    spec["env_set"] = list(env)
    code = {"include": [], "exclude": [], **whole["code"]} if "code" in whole else None
    return Prepared(spec, env, list(whole.get("secrets", [])), code)


def _folder(file: JobFile, cwd: str) -> Path:
    found = (file.path.parent / cwd).resolve()
    if not found.is_dir():
        raise UsageError(
            f"{file.at('cwd')}: the folder {found} does not exist", "make it, or correct cwd"
        )
    return found


def _role(name: str, role: JsonMapping, job: JsonMapping) -> JsonObject:
    fields = {_ROLE.get(key, key): value for key, value in role.items()}
    return {"name": name, "command": job.get("command"), **fields}


def _elements(
    base: Path,
    values: JsonMapping,
    parameters: JsonMapping,
    rows: Sequence[tuple[int | None, sweep.Row]],
) -> list[Element]:
    """Only what has a `{{ }}` in it can differ from job to job."""
    varying = {
        key: values[key] for key in _FILLED if key in values and any(template.names(values[key]))
    }
    found = []
    for index, row in rows:
        own = {**parameters, **row}
        filled = template.fill(varying, own)
        spec = {_SAME[key]: value for key, value in filled.items() if key in _SAME}
        if "roles" in filled or ("roles" in values and "command" in filled):
            roles = {**values, **filled}["roles"]
            spec["roles"] = [
                _role(name, role, {**values, **filled}) for name, role in roles.items()
            ]
        if "folders" in filled:
            spec["folders"] = [
                data_folders.fields(name, given, base) for name, given in filled["folders"].items()
            ]
        if own.keys() - {INDEX}:
            spec["parameters"] = {name: value for name, value in own.items() if name != INDEX}
        assert index is not None  # rows of an array are numbered
        found.append(Element(index, spec, filled.get("env", {})))
    return found
