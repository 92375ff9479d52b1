"""The folders of a submission: everything about them that can be known before the job starts.
Called by `control.py`.

Places of other machines are looked at by the command line, which has the person's keys; here counts
what the job says of itself and what this machine has.
"""

import importlib.util
import json
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Final

from headway.carrier import folder_paths, mount
from headway.model import folder_names as names
from headway.model.errors import UsageError
from headway.model.job import Folder, JobSpec
from headway.model.json_types import JsonObject
from headway.model.limits import FOLDERS_MAX
from headway.settings.jobschema import check_folder
from headway.storage.location import LOCAL, Place, parse

# engines whose carrier runs on this machine
_HERE: Final = frozenset(("local", "docker", "podman"))
_CONTAINERS: Final = frozenset(("docker", "podman"))


def take_keys(env: MutableMapping[str, str]) -> dict[str, dict[str, str]]:
    """The accounts with their keys, taken out of an environment: they are for the carrier, and for
    no program.
    """
    text = env.pop(names.KEYS, "")
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        found = None
    rows = found.values() if isinstance(found, dict) else [None]
    if not all(
        isinstance(row, dict) and all(isinstance(v, str) for v in row.values()) for row in rows
    ):
        raise UsageError(f"{names.KEYS} is not a mapping of accounts")
    return dict(found or {})


def check(spec: JobSpec, env: Mapping[str, str], engine: str, home: Path) -> None:
    if len(spec.folders) > FOLDERS_MAX:
        raise UsageError(f"{len(spec.folders)} folders are too many", f"at most {FOLDERS_MAX}")
    accounts = take_keys(dict(env))
    for folder in spec.folders:
        _check_words(folder)
        _check_account(folder, accounts)
        for where in _places(folder):
            _check_local(folder, where, here=engine in _HERE)
        if folder.mount:
            _check_mount(folder, env, engine)
        elif (
            engine in _HERE
            and folder_paths.needs_library(folder)
            and importlib.util.find_spec("obstore") is None
        ):
            raise UsageError(f"the folder {folder.name} needs the package obstore, which is not installed here",
                             "pip install 'headway[storage]'")  # fmt: skip
        if engine in _HERE and spec.code is None:
            values = {"name": folder.name, "source": folder.source, "mount": folder.mount}
            folder_paths.check_free(
                str(home / "folders"), values, os.path.join(spec.cwd, folder.name)
            )
    _check_apart(spec.folders)


def _check_words(folder: Folder) -> None:
    if not isinstance(folder.name, str):
        raise UsageError("the name of a folder is not text")
    check_folder(folder.name)
    texts = [folder.source, folder.target, folder.account, folder.mount]
    if any(not isinstance(text, str | None) for text in texts) or not all(
        isinstance(o, str) for o in folder.options
    ):
        raise UsageError(f"folders.{folder.name} is not what it should be")
    if folder.mode not in ("ro", "rw"):
        raise UsageError(f"folders.{folder.name}.mode is {folder.mode!r:.40}", "ro or rw")
    if not folder.source and not folder.target:
        raise UsageError(
            f"the folder {folder.name} comes from nowhere and goes nowhere",
            "give it `from`, `to` or both",
        )
    if folder.target and folder.mode == "ro":
        raise UsageError(
            f"the folder {folder.name} is read only, so nothing of it can be sent to {folder.target[:200]}",
            "leave out `to`, or `mode: ro`",
        )
    if folder.options and not folder.mount:
        raise UsageError(
            f"the folder {folder.name} has options for a mount tool and none is named",
            "add `mount:`",
        )


def _places(folder: Folder) -> list[Place]:
    for text in (folder.source, folder.target):
        if text and "://" not in text and not os.path.isabs(os.path.expanduser(text)):
            raise UsageError(f"the folder {folder.name}: {text[:200]} is not an absolute path")
    return [parse(text) for text in (folder.source, folder.target) if text]


def _check_account(folder: Folder, accounts: Mapping[str, Mapping[str, str]]) -> None:
    if folder.account is None:
        return
    if folder.account not in accounts:
        known = ", ".join(accounts) or "none"
        raise UsageError(f"the folder {folder.name}: no keys of the account {folder.account[:60]} were sent",
                         f"known: {known}; hw config accounts")  # fmt: skip
    kind = accounts[folder.account].get("kind")
    for where in _places(folder):
        if where.kind != LOCAL and where.kind != kind:
            raise UsageError(
                f"the folder {folder.name}: the account {folder.account} is for {kind}, and {where} is not"
            )


def _check_local(folder: Folder, where: Place, *, here: bool) -> None:
    """A cluster's nodes may have other paths than this machine; there the carrier tells."""
    if where.kind != LOCAL or not here:
        return
    path = str(where)
    is_source = folder.source and parse(folder.source) == where
    is_target = folder.target and parse(folder.target) == where

    if is_source and not os.path.isdir(path):
        what = "is not a folder" if os.path.exists(path) else "does not exist"
        raise UsageError(
            f"the folder {folder.name} comes from {path[:200]}, which {what}", "correct `from`"
        )

    if is_target and not _may_write_below(path):
        raise UsageError(
            f"the folder {folder.name} goes to {path[:200]}, which cannot be written",
            "correct `to`",
        )


def _may_write_below(path: str) -> bool:
    """The folder, or the nearest one above it that is there."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)


def _check_mount(folder: Folder, env: Mapping[str, str], engine: str) -> None:
    if folder.source and folder.target and folder.source != folder.target:
        raise UsageError(f"the folder {folder.name} is mounted, and cannot come from one place and go to another",
                         "leave out `from` or `to`")  # fmt: skip
    where = parse(str(folder.source or folder.target))
    values: JsonObject = {"name": folder.name, "mount": folder.mount}
    # a container's says nothing of this machine
    program_path = None if engine in _CONTAINERS else env.get("PATH")
    mount.check(values, where, program_path, here=engine in _HERE)


def _check_apart(folders: list[Folder]) -> None:
    """No folder lies in another one, and no two give one variable."""
    seen: dict[str, str] = {}
    for folder in folders:
        other = seen.setdefault(names.variable(folder.name), folder.name)
        inside = next((f.name for f in folders if folder.name.startswith(f"{f.name}/")), None)
        if inside is not None:
            raise UsageError(
                f"the folder {folder.name} lies in the folder {inside}",
                "name one of them otherwise",
            )
        if other != folder.name or [f.name for f in folders].count(folder.name) > 1:
            raise UsageError(f"the folders {other} and {folder.name} have the same variable",
                             "name one of them otherwise")  # fmt: skip
