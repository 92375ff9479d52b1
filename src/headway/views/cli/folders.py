"""The folders of a submission, as the person's settings make them: accounts, keys, and a look at
what is there.

Called by `submission.py`. Keys go with the job's environment, under a name that no program gets to
see.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headway.model import folder_names as names
from headway.model.errors import HeadwayError, NotFoundError, UnreachableError, UsageError
from headway.model.json_types import JsonMapping, JsonObject

if TYPE_CHECKING:
    from headway.settings.layers import Settings
    from headway.storage.location import Place

Folder = JsonObject
_LOOKED_AT_MAX: Final = 8  # places of one submission; an array may have thousands


def settled(
    settings: "Settings", project: Path | None, given: Sequence[JsonMapping]
) -> list[Folder]:
    """Those of the project with those of the job, each with the name of its account."""
    from headway.settings import data_folders as setting

    base = project.parent if project is not None else Path.cwd()
    own = [
        setting.fields(name, found, base) for name, found in (settings.get("folders") or {}).items()
    ]
    return [
        _with_account(folder, settings.get("accounts")) for folder in setting.merged(own, given)
    ]


def _with_account(folder: Folder, accounts: Mapping[str, Mapping[str, str]]) -> Folder:
    from headway.storage import open_store

    kinds = {place.kind for place in _remote(folder)}
    if len(kinds) > 1:
        raise UsageError(
            f"the folder {folder['name']} comes from one kind of storage and goes to another",
            "make two folders of it",
        )
    for place in _remote(folder):
        try:
            folder["account"] = open_store.choose_name(place, accounts, folder.get("account"))
        except UsageError as error:
            hint = error.hint.replace("say which with --account", "say which with `account:`")
            raise UsageError(f"the folder {folder['name']}: {error.message}", hint) from None
    if not kinds:
        folder["account"] = None
    return folder


def _remote(folder: JsonMapping) -> "list[Place]":
    from headway.storage.location import LOCAL, parse

    places = [parse(folder[key]) for key in ("source", "target") if folder.get(key)]
    return [place for place in places if place.kind != LOCAL]


def keys(
    settings: "Settings", environ: Mapping[str, str], folders: Sequence[JsonMapping]
) -> dict[str, str]:
    """The variable that carries the accounts of these folders with their keys; empty where none is
    needed.
    """
    from headway.storage import open_store

    accounts, found = settings.get("accounts"), {}
    for folder in folders:
        name = folder.get("account")
        if name is None:
            continue
        if name not in accounts:
            raise UsageError(f'the folder {folder["name"]}: there is no account "{name[:60]}"',
                             f"known: {', '.join(accounts) or 'none'}; is this the folder of the project?")  # fmt: skip
        try:
            found[name] = open_store.with_keys(accounts[name], {**settings.secrets(), **environ})
        except UsageError as error:
            raise UsageError(f"the account {name}: {error.message}", error.hint) from None
    return {names.KEYS: json.dumps(found)} if found else {}


def look(folders: Sequence[JsonMapping], env: Mapping[str, str]) -> list[str]:
    """A place that is not there is told now. What cannot be reached from here may be reached by the
    job: a warning.
    """
    from headway.model.limits import STORAGE_LOOK_S
    from headway.storage.transfer import Storage

    accounts = json.loads(env.get(names.KEYS) or "{}")
    told: list[str] = []
    seen: set[str] = set()
    for folder in folders:
        for place in _remote(folder):
            if str(place) in seen or len(seen) >= _LOOKED_AT_MAX:
                continue
            seen.add(str(place))
            try:
                storage = Storage(
                    place, accounts.get(folder.get("account") or "", {}), STORAGE_LOOK_S
                )
                if (
                    not storage.has_something()
                    and folder.get("source")
                    and str(place) == folder["source"]
                ):
                    raise NotFoundError(
                        f"there is nothing at {place}", "hw storage ls shows what there is"
                    )
            except UnreachableError as error:
                told.append(
                    f"the folder {folder['name']} could not be looked at from here: {error.message}"
                )
            except HeadwayError as error:
                raise UsageError(
                    f"the folder {folder['name']}: {error.message}", error.hint
                ) from None
    return told
