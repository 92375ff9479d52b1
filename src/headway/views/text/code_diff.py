"""The code that jobs ran, laid out as folders and compared: snapshots from the code store, commits
from the repository with the uncommitted changes applied. Called by `hw diff` and `hw reproduce`.

Git is asked without a repository's own programs, and what it writes goes to a temporary object
store: the person's repository is only read.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from headway.model.errors import HeadwayError
from headway.model.json_types import JsonObject
from headway.model.limits import CODE_DIFF_BYTES_MAX

_GIT: Final = (
    "git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false",
    "-c", "core.autocrlf=false",
)  # fmt: skip
_GIT_S: Final = 120.0


class UnknownCode(HeadwayError):
    """What a job ran cannot be laid out; why."""


def lay_out(side: JsonObject, folder: Path) -> None:
    """The files of one job into `folder`, which is made."""
    if side["snapshot"]:
        _from_snapshot(side, folder)
    elif side["commit"]:
        _from_commit(side, folder)
    else:
        raise UnknownCode(
            f"it is not known what code {side['id']} ran: its folder was in no git repository",
            "hw submit --snapshot keeps the code with a job",
        )


def _from_snapshot(side: JsonObject, folder: Path) -> None:
    from headway.code import checkout
    from headway.code.depot import Depot
    from headway.home import paths

    depot = Depot(paths.home() / "code")
    try:
        checkout.restore(depot, str(side["snapshot"]), str(folder))
    except OSError as error:
        raise UnknownCode(f"the snapshot of {side['id']} cannot be read: {error}") from None
    finally:
        depot.close()


def top_of(cwd: str) -> str | None:
    """The repository that a folder is in."""
    found = _git(cwd, "rev-parse", "--show-toplevel")
    return None if found is None else found.decode().strip()


def _from_commit(side: JsonObject, folder: Path) -> None:
    cwd = side["cwd"]
    top = _git(cwd, "rev-parse", "--show-toplevel")
    if top is None:
        raise UnknownCode(
            f"{cwd}, where {side['id']} ran, is no git repository here",
            "compare on the machine that it ran on",
        )
    objects = _git(cwd, "rev-parse", "--git-path", "objects")
    root = top.decode().strip()
    own = folder.with_name(folder.name + ".git")
    (own / "objects").mkdir(parents=True)
    env = {
        "GIT_INDEX_FILE": str(own / "index"), "GIT_OBJECT_DIRECTORY": str(own / "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.path.join(cwd, (objects or b"").decode().strip()),
    }  # fmt: skip
    if _git(root, "read-tree", side["commit"], env=env) is None:
        raise UnknownCode(
            f"the commit {side['commit'][:12]} of {side['id']} is not in {root} any more",
            "git fetch may bring it back",
        )
    if side["patch"]:
        if "(cut off here)" in side["patch"] or side["patch"].startswith("("):
            raise UnknownCode(
                f"the uncommitted changes of {side['id']} were too large to be kept",
                "hw submit --snapshot keeps all of the code",
            )
        patch = side["patch"].encode("utf-8", "surrogateescape")
        applied = _git(root, "apply", "--cached", "--whitespace=nowarn", "-", env=env, text=patch)
        if applied is None:
            raise UnknownCode(f"the uncommitted changes of {side['id']} do not apply to its commit")
    folder.mkdir()
    if _git(root, "checkout-index", "--all", f"--prefix={folder}/", env=env) is None:
        raise UnknownCode(f"the files of {side['id']} cannot be laid out")
    shutil.rmtree(own, ignore_errors=True)


def _git(
    cwd: str, *words: str, env: dict[str, str] | None = None, text: bytes | None = None
) -> bytes | None:
    """Output of git; None where it fails."""
    full = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", **(env or {})}
    try:
        done = subprocess.run(
            [*_GIT, *words], cwd=cwd, env=full, input=text, stdin=None if text is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_GIT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def unified(a: Path, b: Path, *, color: bool = False) -> str:
    """What makes `b` of `a`, as git writes it; empty where they are equal."""
    words = [
        *_GIT, "diff", "--no-index", "--no-ext-diff", "--no-textconv", "--find-renames",
        f"--color={'always' if color else 'never'}", "--", a.name, b.name,
    ]  # fmt: skip
    try:
        done = subprocess.run(
            words, cwd=a.parent, stdin=subprocess.DEVNULL, capture_output=True, timeout=_GIT_S,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnknownCode(f"git cannot compare the code: {error}", "git makes the diff") from None
    if done.returncode not in (0, 1):
        raise UnknownCode(
            f"git cannot compare the code: {done.stderr.decode(errors='replace')[:200]}"
        )
    text = done.stdout[:CODE_DIFF_BYTES_MAX].decode(errors="replace")
    if len(done.stdout) > CODE_DIFF_BYTES_MAX:
        text += "\n(cut off here)\n"
    return text
