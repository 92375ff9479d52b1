"""Project files of other owners that a person trusts: `hw trust`, as git's safe.directory.

A `headway.yaml` says where jobs run and which variables go with them. One that belongs to somebody
else, or that others can write, is obeyed only if its path stands in `trusted` in the settings
folder, one path per line.
"""

import os
import shlex
from pathlib import Path

from headway.home import paths
from headway.home.ownership import check_file, file_problem, make_private
from headway.model.errors import RefusedError

TRUSTED_FILE = "trusted"


def trusted_file() -> Path:
    return paths.config_folder() / TRUSTED_FILE


def trusted() -> list[str]:
    path = trusted_file()
    try:
        check_file(path)
        lines = path.read_text("utf-8", errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return []
    return [line for line in lines if line.strip() and not line.startswith("#")]


def check_project(path: Path) -> None:
    """Refuse a project's file that is somebody else's, or that others can write, unless trusted."""
    problem = file_problem(path)
    if not problem or os.path.realpath(path) in trusted():
        return
    named = shlex.quote(str(path))
    mend = f"to take away their right: chmod go-w {named}" if "can be written" in problem else ""
    raise RefusedError(
        f"{problem}; it says where jobs run and what they are given, so it was not read",
        "\n".join(
            line
            for line in (
                f"if you trust it, look at it, then: hw trust {named}",
                mend,
                "to go without it: HEADWAY_CONFIG=/dev/null hw …",
            )
            if line
        ),
    )


def add(path: Path) -> Path:
    """Trust the file at that path from now on; returns its real path."""
    real = os.path.realpath(path)
    known = trusted()
    if real not in known:
        _write([*known, real])
    return Path(real)


def remove(path: Path) -> bool:
    real, known = os.path.realpath(path), trusted()
    if real not in known:
        return False
    _write([line for line in known if line != real])
    return True


def _write(lines: list[str]) -> None:
    path = trusted_file()
    make_private(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write("".join(f"{line}\n" for line in lines))
    os.replace(draft, path)
