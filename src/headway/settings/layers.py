"""The layers of settings and where each value came from (capability 50). Called by every command
and by the server.

    built-in < user file < project file < private file < environment < command line

The user file is `config.yaml` and the private file `private.yaml`, both in
`$XDG_CONFIG_HOME/headway`; the project file is the nearest `headway.yaml` from the working folder
upwards, or the file that HEADWAY_CONFIG names. Only the private file may hold `secrets`, a mapping
of names to values, and it must be closed to others.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headway.home import paths
from headway.home.ownership import check_file
from headway.model.errors import UsageError
from headway.model.json_types import JsonMapping
from headway.settings import clusters
from headway.settings.nearest import did_you_mean, nearest
from headway.settings.project import project_file
from headway.settings.schema import SETTINGS

USER_FILE: Final = "config.yaml"
PRIVATE_FILE: Final = "private.yaml"
PRIVATE_VARIABLES: Final = "private.env"  # secrets as lines NAME=VALUE
BUILT_IN: Final = "built-in"
COMMAND_LINE: Final = "command line"
SECRETS: Final = "secrets"
JOB: Final = "job"  # a job of the project, read by `jobfile.py`
MASK: Final = "********"

# Variables of ours that are not settings; `docs/concepts/protocol.md` says what they hold.
RESERVED_VARIABLES: Final = frozenset(
    "HEADWAY_" + name
    for name in (
        "HOME CONFIG TOKEN JOB UUID ATTEMPT TASK ROLE SPOOL OUTPUT_DIR ARRAY_INDEX NODES TASKS TASK_PORT HOSTS "
        "ADDRESSES LOCAL_RANK"
    ).split()
)
# by how they begin and end; `hw` may run in a job
_OF_A_JOB: Final = ("HEADWAY_FOLDER_",), ("_HOSTS", "_ADDRESSES")
# a variable this close to one of ours is a misspelling; others are somebody else's
_TYPO_CUTOFF: Final = 0.8


@dataclass(frozen=True, slots=True)
class Value:
    value: Any
    origin: str  # "built-in", "FILE, line N", a variable's name, or "command line"


class Settings:
    """All settings with their origins, and the secrets of the private file."""

    def __init__(self, values: dict[str, Value], secrets: dict[str, str]) -> None:
        self._values = values
        self._secrets = secrets

    def get(self, name: str) -> Any:
        return self._values[name].value

    def origin(self, name: str) -> str:
        return self._values[name].origin

    def idle(self, cwd: Path) -> list[str]:
        """Settings of the server that stand in the project's file, which no server reads."""
        project = None if os.environ.get("HEADWAY_CONFIG") else project_file(cwd)
        mine = f"{project}, line "
        return [
            n
            for n, s in SETTINGS.items()
            if s.scope == "server" and self._values[n].origin.startswith(mine)
        ]

    def secrets(self) -> dict[str, str]:
        """Variables for the environment of jobs; their values are masked wherever they appear
        (capability 52).
        """
        return dict(self._secrets)

    def rows(self) -> Iterator[tuple[str, Any, str]]:
        """`(name, value, origin)` for `hw config`; secrets by name alone."""
        for name, found in self._values.items():
            shown = SETTINGS[name].shown
            yield (
                name,
                found.value if shown is None or found.value is None else shown(found.value),
                found.origin,
            )
        for name in self._secrets:
            yield f"{SECRETS}.{name}", MASK, PRIVATE_FILE


def load(cwd: Path | None, overrides: JsonMapping | None = None) -> Settings:
    """Read all layers. `cwd` None: no project file (but HEADWAY_CONFIG counts). `overrides`: from
    the command line.
    """
    values = {name: Value(setting.default_value(), BUILT_IN) for name, setting in SETTINGS.items()}
    secrets: dict[str, str] = {}
    folder = paths.config_folder()
    if _exists(folder / USER_FILE):
        check_file(folder / USER_FILE)
    _read_file(folder / USER_FILE, values)
    project = project_file(cwd)
    if project is not None:
        _read_file(project, values)
    _read_private(folder / PRIVATE_FILE, values, secrets)
    _read_variables(folder / PRIVATE_VARIABLES, secrets)
    _read_environment(values)
    for name, value in (overrides or {}).items():
        setting = SETTINGS.get(name)
        if setting is None:
            raise UsageError(f'unknown setting "{name}"{did_you_mean(name, SETTINGS)}')
        values[name] = Value(setting.parse(value, name), COMMAND_LINE)
    if values["secrets_file"].value is not None:
        path = Path(values["secrets_file"].value)
        if not _exists(path):
            raise UsageError(
                f"the secrets file {path} does not exist", "make it, or correct secrets_file"
            )
        _read_variables(path, secrets)
    return Settings(values, secrets)


def files(cwd: Path | None) -> list[tuple[Path, bool]]:
    """The files that `load` reads, later ones above earlier ones, and whether each is there."""
    folder = paths.config_folder()
    found = [folder / USER_FILE, project_file(cwd), folder / PRIVATE_FILE]
    if _exists(folder / PRIVATE_VARIABLES):
        found.append(folder / PRIVATE_VARIABLES)
    return [(path, _exists(path)) for path in found if path is not None]


def _read_file(path: Path, values: dict[str, Value], secrets: dict[str, str] | None = None) -> None:
    if not _exists(path):
        return
    # here: most homes have no file, and then YAML is not needed
    from headway.settings import yamlfile

    root = yamlfile.read(path)
    if not isinstance(root.value, dict):
        raise UsageError(
            f"{path}, line {root.line}: a settings file is a mapping of names to values"
        )
    for name, node in root.value.items():
        where = f"{path}, line {node.line}"
        if name == SECRETS:
            _take_secrets(node, where, secrets)
        elif name == JOB and path.name not in (USER_FILE, PRIVATE_FILE):
            continue
        else:
            _take(name, node, str(path), values)


def _take(name: str, node: Any, file: str, values: dict[str, Value]) -> None:
    """One setting of a file; a mapping under an unknown name is read as dotted names."""
    where = f"{file}, line {node.line}"
    setting = SETTINGS.get(name)
    if name == "clusters":
        _take_clusters(node, file, values)
        return
    if name == "defaults":
        _take_defaults(node, where, values)
        return
    if name == "code" and node.value == "pin":
        values["code.pin"] = Value(True, where)
        return
    if setting is not None:
        values[name] = Value(setting.parse(node.plain(), f"{where}: {name}"), where)
        return
    if isinstance(node.value, dict) and any(known.startswith(name + ".") for known in SETTINGS):
        for key, child in node.value.items():
            _take(f"{name}.{key}", child, file, values)
        return
    raise UsageError(
        f'{where}: unknown key "{name[:80]}"{did_you_mean(name, SETTINGS)}',
        "`hw config` lists every setting",
    )


def _take_defaults(node: Any, where: str, values: dict[str, Value]) -> None:
    """A later file adds to those before it, key by key; of variables, name by name."""
    from headway.settings import job_defaults

    before = values["defaults"].value
    found = job_defaults.read(node, f"{where}: defaults")
    if before.get("env") and found.get("env"):
        found["env"] = {**before["env"], **found["env"]}
    values["defaults"] = Value({**before, **found}, where)


def _take_clusters(node: Any, file: str, values: dict[str, Value]) -> None:
    """A later file adds its clusters to those of the files before it, and replaces those of the
    same name whole.
    """

    def where(path: tuple[str, ...]) -> str:
        found = node
        for key in path:
            found = (
                found.value[key] if isinstance(found.value, dict) and key in found.value else found
            )
        return f"{file}, line {found.line}"

    added = clusters.parse(node.plain() or {}, f"{file}, line {node.line}: clusters", where)
    values["clusters"] = Value({**values["clusters"].value, **added}, f"{file}, line {node.line}")


def _take_secrets(node: Any, where: str, secrets: dict[str, str] | None) -> None:
    if secrets is None:
        raise UsageError(
            f"{where}: secrets may stand only in {paths.config_folder() / PRIVATE_FILE}",
            "this file may be shared or committed; move them there",
        )
    found = node.plain()
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise UsageError(
            f"{where}: secrets is a mapping of names to texts", "write numbers in quotes"
        )
    secrets.update(found)


def _read_private(path: Path, values: dict[str, Value], secrets: dict[str, str]) -> None:
    if not _exists(path):
        return
    _check_private(path)
    _read_file(path, values, secrets)


def _check_private(path: Path) -> None:
    """A private file is read only when nobody else can read or change it."""
    found = os.stat(path)
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.getuid() or mode & 0o077:
        raise UsageError(
            f"{path} is open to others (mode {mode:04o}, owner {found.st_uid}); it was not read",
            f"chmod 600 {path}",
        )


def _read_variables(path: Path, secrets: dict[str, str]) -> None:
    """Lines NAME=VALUE, as many tools write them: `export` and quotes around the value may stand
    there, and lines that begin with # say nothing.
    """
    if not _exists(path):
        return
    _check_private(path)
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        text = line.strip().removeprefix("export ").strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name or not name.replace("_", "a").isalnum():
            raise UsageError(
                f"{path}, line {number}: this is not NAME=VALUE", "for example: WANDB_API_KEY=…"
            )
        if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        secrets[name] = value


def _read_environment(values: dict[str, Value]) -> None:
    by_variable = {setting.variable: setting for setting in SETTINGS.values()}
    for variable, text in os.environ.items():
        setting = by_variable.get(variable)
        if setting is not None:
            values[setting.name] = Value(setting.parse(text, variable), variable)
            continue
        if not variable.startswith("HEADWAY_") or is_of_a_job(variable):
            continue
        meant = nearest(variable.removeprefix("HEADWAY_").lower(), SETTINGS, cutoff=_TYPO_CUTOFF)
        if meant is not None:
            raise UsageError(
                f'unknown variable {variable[:80]}; did you mean "{SETTINGS[meant].variable}"?'
            )


def is_of_a_job(variable: str) -> bool:
    """Whether it is one that jobs are given, or another of ours that is no setting."""
    begins, ends = _OF_A_JOB
    return variable in RESERVED_VARIABLES or variable.startswith(begins) or variable.endswith(ends)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # a folder above it may not be searched
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
