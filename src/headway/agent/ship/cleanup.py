"""Clearing a task's folder: drafts that a killed shipper left, and everything once the server has
it.

Called by the shipper as its very last step. The folder disappears under its name in one step (a
half-removed one is swept by the engine), so nobody ever takes a half-empty folder for a task.
"""

from __future__ import annotations

import os

from headway.model.folder_names import PRIVATE
from headway.spool.files import OS_FILES, Files
from headway.spool.stream_names import new_rand

REFUSED_FOLDER = ".refused"


def sweep_drafts(task_dir: str, files: Files = OS_FILES) -> None:
    """Files that were being replaced when their writer was killed."""
    try:
        names = files.listdir(task_dir)
    except OSError:
        return
    for name in names:
        if name.startswith(("cursor.json.", ".drops.", ".secrets.", "job.json.")) and name.endswith(
            ".tmp"
        ):
            _unlink(files, os.path.join(task_dir, name))


def remove_folder(task_dir: str, files: Files = OS_FILES) -> None:
    parent, name = os.path.split(task_dir.rstrip("/"))
    aside = os.path.join(parent, f".old-{name}-{new_rand()}")
    try:
        files.rename(task_dir, aside)
    except OSError:
        aside = task_dir  # what can be emptied is emptied
    _remove_tree(aside, files)


def keep_refused(
    task_dir: str, refused: tuple[str, ...], done: list[str], files: Files = OS_FILES
) -> None:
    """The server refused some streams: they are set aside for a person; of the rest only what tells
    the end stays.
    """
    place = os.path.join(task_dir, REFUSED_FOLDER)
    try:
        files.mkdir(place, 0o700)
    except FileExistsError:
        pass
    except OSError:
        return
    for name in refused:
        try:
            files.rename(os.path.join(task_dir, name), os.path.join(place, name))
        except OSError:
            continue
    for name in [*done, ".secrets", ".drops", "env.json", PRIVATE]:
        if name != "shim" and not name.startswith("shipper-"):
            _unlink(files, os.path.join(task_dir, name))


def _remove_tree(folder: str, files: Files) -> None:
    try:
        names = files.listdir(folder)
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)
        if not os.path.islink(path) and os.path.isdir(path):
            _remove_tree(path, files)
        else:
            _unlink(files, path)
    try:
        os.rmdir(folder)
    except OSError:
        return


def _unlink(files: Files, path: str) -> None:
    try:
        files.unlink(path)
    except OSError:
        return
