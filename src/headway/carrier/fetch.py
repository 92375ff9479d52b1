"""Bringing folders to a node before the command starts. Called by `main.py`.

What a job may only read is fetched into a cache of the node, once for all of its tasks and for
later jobs, and a link leads to it. What a job may change is fetched into its working folder, once
for all attempts. A fetch that was cut off goes on where it stopped (`storage/transfer.py`).
"""

import os
from collections.abc import Mapping

from headway.carrier import folder_paths
from headway.carrier.carrier_state import Meter, State
from headway.model.errors import NotFoundError
from headway.model.json_types import JsonMapping
from headway.model.undo import UndoOnFailure
from headway.storage.location import Place, safe_name
from headway.storage.transfer import Storage, Thing


def fetch(
    folder: JsonMapping, storage: Storage, base: str, uuid: str, path: str, state: State
) -> str:
    """The folder at `path`; its true path."""
    if folder["mode"] == "ro":
        found = _cached(folder, storage, base, state)
        folder_paths.write_json(
            folder_paths.job_file(base, uuid, str(folder["name"]), "cached"), {"version": found}
        )
        folder_paths.link(path, found)
        return found
    note = folder_paths.job_file(base, uuid, str(folder["name"]), "fetched")
    with folder_paths.locked(f"{note}.lock", state.check_stop):
        if not os.path.isdir(path) or not folder_paths.read_json(note):
            os.makedirs(path, exist_ok=True)
            folder_paths.write_json(
                folder_paths.placed_file(base, path), {"path": path, "source": str(storage.place)}
            )
            _download(folder, storage, path, _listed(storage), state)
            folder_paths.write_json(note, {"path": path})
    return path


def link_local(source: Place, path: str) -> str:
    """A folder of this machine, as it lies."""
    if not os.path.isdir(str(source)):
        raise NotFoundError(
            f"there is no folder {source} on {os.uname().nodename}", "correct `from`"
        )
    folder_paths.link(path, str(source))
    return str(source)


def _listed(storage: Storage) -> dict[str, Thing]:
    found = storage.everything()
    if not found:
        raise NotFoundError(
            f"there is nothing at {storage.place}", "hw storage ls shows what there is"
        )
    return found


def _download(
    folder: JsonMapping, storage: Storage, path: str, found: dict[str, Thing], state: State
) -> None:
    total = sum(thing.size or 0 for thing in found.values())
    meter = Meter(state, str(folder["name"]), "fetching", total, stops=True)
    # whatever it was, the bar says that it failed
    with UndoOnFailure(meter.close, "failed"):
        storage.download(path, meter.add, found)
    meter.close()


def _cached(folder: JsonMapping, storage: Storage, base: str, state: State) -> str:
    """The version of the place that is there now. What the last version had already is not fetched
    again.
    """
    cache = folder_paths.cache_folder(base, storage.place, storage.account)
    with folder_paths.locked(os.path.join(cache, ".lock"), state.check_stop):
        found = _listed(storage)
        rows = sorted(
            f"{name} {thing.size} {thing.modified} {thing.tag}" for name, thing in found.items()
        )
        version = os.path.join(cache, folder_paths.digest(*rows))
        if not os.path.exists(f"{version}.json"):
            os.makedirs(version, exist_ok=True)
            _reuse(cache, version, found)
            _download(folder, storage, version, found, state)
            _protect(version)
            folder_paths.write_json(
                f"{version}.json", {"place": str(storage.place), "files": len(found)}
            )
        os.utime(f"{version}.json")
    return version


def _reuse(cache: str, version: str, found: Mapping[str, Thing]) -> None:
    """Links to files of the version before, which are the same if size and time are; the download
    looks at that.
    """
    notes = [entry for entry in os.scandir(cache) if entry.name.endswith(".json")]
    if not notes:
        return
    last = max(notes, key=lambda entry: entry.stat().st_mtime).path.removesuffix(".json")
    for name, thing in found.items():
        inside = safe_name(name or thing.name)
        old, new = os.path.join(last, inside), os.path.join(version, inside)
        if os.path.isfile(old) and os.path.getsize(old) == thing.size and not os.path.lexists(new):
            os.makedirs(os.path.dirname(new), exist_ok=True)
            os.link(old, new)


def _protect(version: str) -> None:
    """Nobody changes what others rely on. The owner can still remove it: `hw gc` does."""
    for folder, _, names in os.walk(version):
        for name in names:
            os.chmod(os.path.join(folder, name), 0o400)
        os.chmod(folder, 0o500)
