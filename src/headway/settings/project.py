"""Where a project's settings file is. Apart from `layers.py`, so that who only needs its path does
not meet YAML.
"""

import os
from pathlib import Path
from typing import Final

from headway.model.errors import UsageError

PROJECT_FILE: Final = "headway.yaml"


def project_file(cwd: Path | None) -> Path | None:
    """The project's file: what HEADWAY_CONFIG names, else the nearest `headway.yaml` from `cwd`
    upwards.
    """
    named = os.environ.get("HEADWAY_CONFIG", "")
    if named:
        path = Path(named).expanduser().absolute()
        if not path.exists():
            raise UsageError(
                f"HEADWAY_CONFIG names {path}, which does not exist",
                "correct or unset HEADWAY_CONFIG",
            )
        return path
    if cwd is None:
        return None
    for folder in (cwd, *cwd.parents):
        path = folder / PROJECT_FILE
        if path.is_file():
            _check_owner(path, cwd)
            return path
    return None


def _check_owner(path: Path, cwd: Path) -> None:
    """A `headway.yaml` that another user left in a shared folder above ours must not steer our
    jobs.
    """
    owner = path.stat().st_uid
    if owner not in (0, os.getuid(), cwd.stat().st_uid):
        raise UsageError(
            f"{path} belongs to another user (uid {owner}) and was not read",
            f"if you trust it: HEADWAY_CONFIG={path}; if not: HEADWAY_CONFIG=/dev/null",
        )
