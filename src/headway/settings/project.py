"""Where a project's settings file is. Apart from `layers.py`, so that who only needs its path does
not meet YAML.
"""

import os
from pathlib import Path
from typing import Final

from headway.model.errors import UsageError
from headway.settings.trust import check_project

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
            check_project(path)
            return path
    return None
