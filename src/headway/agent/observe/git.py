"""What git says of a folder: commit, branch, uncommitted changes, remote. Called by
`provenance.py`.

Asking takes some processes, which is more than all else that a short job costs. So an answer is
kept in the home, with the size, times and number of every file that it was made from: git's own and
all that are tracked. While these are as they were, git would say the same again, and it is not
asked (as git itself goes by them). One answer is kept, the last: for jobs from one tree, one soon
after the other.
"""

from __future__ import annotations

import json
import os
import time

from headway.model.limits import FRAME_BYTES_MAX, GIT_FILES_MAX, PROVENANCE_DIFF_BYTES_MAX
from headway.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from headway.model.json_types import JsonObject

    State = JsonObject

KEPT = "git.json"  # in the home
GIT_TIMEOUT_S = 10.0
_REMOTE = "remote.origin.url"
# what changed less than this ago may change again within the same tick of a file system
SETTLED_NS = 2_000_000_000
# with escapes it must fit into one frame
_DIFF_BYTES_MAX = min(PROVENANCE_DIFF_BYTES_MAX, FRAME_BYTES_MAX // 2)
# how git talks to people and to other machines; all else may change what it says of a folder
_HARMLESS = (
    "GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_PAGER", "GIT_ASKPASS", "GIT_SSH",
    "GIT_SSL_", "GIT_HTTP_", "GIT_PROXY_", "GIT_CURL_", "GIT_TRACE",
    "GIT_TERMINAL_PROMPT", "GIT_OPTIONAL_LOCKS", "GIT_PS1_", "GIT_LFS_", "GIT_MERGE_AUTOEDIT",
)  # fmt: skip
# how a line of ls-files begins; what is changed inside of one is not among our files
_SUBMODULE = b"160000 "


class Answer(Value):
    state: "State | None"  # None: there is no git, or no repository
    top: str | None = None
    files: "tuple[str, ...]" = ()
    mark: int | None = None  # of the files, just before git was asked; None: not to be kept


def find_top(cwd: str) -> str | None:
    """Where git would find the working tree: by `.git` in a folder above, the only thing that it
    goes by itself.
    """
    folder = os.path.realpath(cwd)
    while not os.path.lexists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return folder


def recall(cwd: str, home: str) -> Answer | None:
    """What git would say, where that is known without asking."""
    if _is_led_elsewhere():
        return None
    top = find_top(cwd)
    if top is None:
        return Answer(None)
    try:
        with open(os.path.join(home, KEPT), "rb") as file:
            kept = json.loads(file.read())
        if kept["top"] == top and _mark(kept["files"])[0] == kept["mark"]:
            return Answer(kept["state"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # none yet, or half written by a machine that went down
    return None


def ask(cwd: str) -> Answer:
    top = find_top(cwd)
    if top is None:
        return Answer(None)
    begun_ns = time.time_ns()
    settings, origins = _settings(top)
    own, tracked = _own_files(top), _tracked(top)
    files = (*own, *origins, *tracked)
    mark, newest_ns = _mark(files)
    state = _state(top, settings.get(_REMOTE) or None)
    known = bool(own and tracked) and "core.worktree" not in settings
    settled = known and state is not None and newest_ns < begun_ns - SETTLED_NS
    return Answer(state, top, files, mark if settled else None)


def keep(answer: Answer, home: str) -> None:
    """For the next one. Not synced: one that is lost is asked for again."""
    if answer.mark is None:
        return
    path = os.path.join(home, KEPT)
    draft = f"{path}.{os.getpid()}.tmp"
    data = json.dumps(
        {"top": answer.top, "mark": answer.mark, "state": answer.state, "files": answer.files}
    )
    try:
        fd = os.open(
            draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with os.fdopen(fd, "w") as file:
            file.write(data)
        os.rename(draft, path)
    except OSError:
        return  # a full disk, or a home that is not here: then it is not kept


def _is_led_elsewhere() -> bool:
    """Git may have been told another index or another folder: what it says then is not kept, nor
    looked up.
    """
    return any(name.startswith("GIT_") and not name.startswith(_HARMLESS) for name in os.environ)


def remote(cwd: str) -> str | None:
    top = find_top(cwd)
    return None if top is None else _settings(top)[0].get(_REMOTE) or None


def _mark(paths: "Iterable[str]") -> tuple[int, int]:
    """One number for how all of them are now, and the time of the latest change. The hash of a
    tuple of numbers is the same in every process.
    """
    numbers: list[int] = []
    newest_ns = 0
    for path in paths:
        try:
            found = os.lstat(path)
        except OSError:
            numbers.append(-1)
            continue
        changed_ns, written_ns = found.st_ctime_ns, found.st_mtime_ns
        newest_ns = max(newest_ns, changed_ns, written_ns)
        numbers += (found.st_ino, found.st_mode, found.st_size, written_ns, changed_ns)
    return hash(tuple(numbers)), newest_ns


def _own_files(top: str) -> list[str]:
    """What git reads beside the tracked files: where it stands, what is staged, how it is set up.
    [] where this is no repository by git's own rule, so that it would look further above.
    """
    dot = folder = os.path.join(top, ".git")
    if os.path.isfile(dot):  # a further working tree
        folder = os.path.join(top, _first_line(dot).removeprefix("gitdir:").strip())
    common = os.path.join(folder, _first_line(os.path.join(folder, "commondir")))
    branch = _first_line(os.path.join(folder, "HEAD")).removeprefix("ref:").strip()
    if not branch or not all(
        os.path.isdir(os.path.join(common, name)) for name in ("objects", "refs")
    ):
        return []
    person = os.path.expanduser("~")
    settings = (
        "/etc/gitconfig",
        os.path.join(person, ".gitconfig"),
        os.path.join(person, ".config/git/config"),
    )
    here = [os.path.join(folder, name) for name in ("HEAD", "index", "config.worktree", branch)]
    shared = [
        os.path.join(common, name)
        for name in ("config", "packed-refs", "reftable/tables.list", branch)
    ]
    return [dot, *here, *shared, *settings]


def _first_line(path: str) -> str:
    try:
        with open(path, errors="surrogateescape") as file:
            return file.readline().strip()
    except OSError:
        return ""


def _tracked(top: str) -> list[str]:
    """[] where they cannot be told, or are so many that asking git costs less than looking at each."""
    if _is_led_elsewhere():
        return []
    listed = _git(top, "ls-files", "--stage", "-z") or b""
    lines = listed.split(b"\0")[:-1]
    if len(lines) > GIT_FILES_MAX or any(line.startswith(_SUBMODULE) for line in lines):
        return []
    return [os.path.join(top, os.fsdecode(line.partition(b"\t")[2])) for line in lines]


def _settings(top: str) -> tuple[dict[str, str], list[str]]:
    """Name to value, and the files that they are from."""
    data = _git(top, "config", "--list", "--show-origin", "-z") or b""
    words = data.decode(errors="surrogateescape").split("\0")[:-1]
    origins = {
        os.path.join(top, word.removeprefix("file:"))
        for word in words[::2]
        if word.startswith("file:")
    }
    values = {name: value for name, _, value in (word.partition("\n") for word in words[1::2])}
    return values, sorted(origins)


def _state(top: str, origin: str | None) -> "State | None":
    status = _git(
        top, "status", "--porcelain=v2", "--branch", "--untracked-files=no", "--no-renames"
    )
    if status is None:
        return None
    lines = status.decode(errors="replace").splitlines()
    head = dict(
        line[2:].split(" ", 1) for line in lines if line.startswith("# ") and " " in line[2:]
    )
    commit = head.get("branch.oid")
    dirty = any(not line.startswith("#") for line in lines)
    return {
        "commit": None if commit in (None, "(initial)") else commit,
        "branch": head.get("branch.head"),
        **_last_commit(top),
        "dirty": dirty,
        "diff": _diff(top) if dirty else "",
        "remote": origin,
    }


def _last_commit(top: str) -> "State":
    """Who made the commit, and the first line of what he says of it."""
    data = _git(top, "log", "-1", "--no-show-signature", "--format=%an%n%s")
    lines = (data or b"").decode(errors="replace").splitlines()
    if len(lines) < 2:
        return {}
    return {"author": lines[0][:200], "message": lines[1][:200]}


def _diff(top: str) -> str:
    data = _git(top, "diff", "--no-color", "--no-ext-diff", "--no-textconv", "HEAD")
    if data is None:
        return "(could not be read)"
    text = data[:_DIFF_BYTES_MAX].decode(errors="replace")
    return text + "\n(cut off here)" if len(data) > _DIFF_BYTES_MAX else text


def _git(cwd: str, *words: str) -> bytes | None:
    """Output of a git command that changes nothing; None when it fails or takes too long."""
    import subprocess

    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    # a repository's own settings could name programs to be run (fsmonitor, diff drivers): none of
    # them is
    plain = [
        "git",
        "-c",
        "core.fsmonitor=false",
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "core.quotePath=false",
    ]
    try:
        child = subprocess.Popen(
            [*plain, *words], cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:
        return None
    try:
        data, _ = child.communicate(timeout=GIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return None
    return data if child.returncode == 0 else None
