"""Which files of a working tree belong to a snapshot. Called by `snapshot.py`.

Inside a git work tree git itself says which files are tracked or not ignored, so its rules hold
exactly; submodules and nested repositories are asked one by one. Elsewhere `.gitignore` files are
read by our own matcher. On top of either: `.hwignore` (the same syntax), what tools leave behind,
and the patterns of the setting `code`.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import stat
import subprocess
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass

from headway.code.excluded_names import BUILT, DATA_FOLDERS, LEFT_BEHIND, SECRETS
from headway.code.ignore import Ignored, Rules
from headway.model.errors import RefusedError
from headway.model.limits import (
    CODE_FILE_BYTES_MAX,
    CODE_GIT_S,
    CODE_IGNORE_BYTES_MAX,
    CODE_WALKED_MAX,
)

HWIGNORE, GITIGNORE = ".hwignore", ".gitignore"
_PIPE_BYTES = 1 << 20  # the names of 50,000 files: git need not wait until we read them
_UNREAD = re.compile(r"^warning: could not open directory '(.+)': (.+)$", re.MULTILINE)
# what `snapshot.py` leaves out by itself is among the rules
RULES_VERSION = f"1 {SECRETS!r} {CODE_FILE_BYTES_MAX}"


@dataclass(frozen=True, slots=True)
class CodeRules:
    """The setting `code`. `include` and `exclude` are patterns as in `.gitignore`; `allow` are
    paths.
    """

    include: Sequence[str] = ()  # taken although something ignores it
    exclude: Sequence[str] = ()  # left out; stronger than `include`
    # taken although it looks like a secret, is too large or leaves the tree
    allow: Sequence[str] = ()


def find_root(cwd: str, project: str | None = None) -> str:
    """The folder that is one snapshot: that of `headway.yaml`, else git's work tree, else the
    working folder.
    """
    if project is not None:
        return project
    top = git(cwd, "rev-parse", "--show-toplevel")
    found = os.fsdecode(top).rstrip("\n") if top else ""
    return found if found and os.path.isdir(found) else cwd


class Tree:
    """One look at a working tree. `skip`: folders that are never looked into, such as Headway's own
    home.
    """

    def __init__(self, root: str, rules: CodeRules, *, skip: Iterable[str] = ()) -> None:
        self.root, self._rules = root, rules
        self._listing: _Listing | None = None
        inside = [os.path.relpath(folder, root) for folder in skip]
        self._skipped = {path for path in inside if not path.startswith("..")}
        self.left_out: list[tuple[str, str]] = []  # (path, reason)
        # what `paths` went by: where it says the same again, what was taken then is taken now
        self.rules = ""

    def ask(self) -> None:
        """Let git begin: it works while we do something else."""
        self._listing = _Listing(self.root)

    def paths(self, taken: Collection[str] = (), rules: str = "") -> list[str]:
        """Relative, with slashes. A submodule, or a repository inside this one, comes as its
        folder: see `inside`.

        `taken`: paths of an earlier look by `rules`, which are not judged anew where the rules are
        the same.
        """
        listing = self._listing or _Listing(self.root)
        found = listing.take()
        self.left_out += listing.unread
        if found is None:
            data = data_patterns(self.root)
            layers = _Layers(self.root, (GITIGNORE, HWIGNORE), data)
            found = list(_walk(self.root, layers, self._skipped))
            self.left_out += [
                (
                    name.strip("/") + "/",
                    "data, as its name says; code.include takes it all the same",
                )
                for name in data
                if name.endswith("/") and layers.ignores(name.strip("/"), True)
            ]
        else:
            found = self._kept(found, taken, rules)
        if not (self._rules.include or self._rules.exclude or self._skipped):
            return found
        chosen = set(found)
        if self._rules.include:
            chosen |= _included(self.root, self._rules.include, self._skipped)
        return self._without_excluded(chosen)

    def inside(self, folder: str) -> list[str]:
        """The files of a folder that `paths` has named: a submodule, or a nested repository."""
        below = folder.rstrip("/") + "/"
        if not os.path.lexists(os.path.join(self.root, below, ".git")):
            self.left_out.append(
                (below, "a submodule that is not checked out: git submodule update --init")
            )
            return []
        listing = _Listing(self.root, below)
        found = listing.take() or []
        self.left_out += listing.unread
        return self._without_excluded(set(self._kept(found)))

    def _kept(self, paths: list[str], taken: Collection[str] = (), rules: str = "") -> list[str]:
        """What git has listed, without what `.hwignore` and we ourselves leave out."""
        ours = _Layers(self.root, (HWIGNORE,))
        folders = {path.rpartition("/")[0] for path in paths if path.endswith(HWIGNORE)}
        for folder in sorted({"", *folders}):
            ours.enter(folder)
        self.rules = ours.rules(
            RULES_VERSION, *(repr(list(words)) for words in astuple(self._rules))
        )
        if rules != self.rules:
            return [path for path in paths if not ours.ignores(path)]
        # by the same rules as before: what was taken then is taken again
        if paths == list(taken):
            return paths
        return [path for path in paths if path in taken or not ours.ignores(path)]

    def _without_excluded(self, chosen: set[str]) -> list[str]:
        if self._rules.exclude:
            excluded = Ignored()
            excluded.add(Rules(self._rules.exclude))
            chosen = {path for path in chosen if not excluded.ignores(path)}
        below = tuple(f"{path}/" for path in self._skipped)
        skipped = self._skipped
        return (
            [path for path in chosen if path not in skipped and not path.startswith(below)]
            if below
            else list(chosen)
        )


# -- git


def git(cwd: str, *words: str) -> bytes | None:
    """Output of a git command that changes nothing; None when there is no git, no repository, or it
    refuses.
    """
    return _Git(cwd, *words).output()


class _Git:
    """A git command that is under way."""

    def __init__(self, cwd: str, *words: str) -> None:
        env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        # set inside hooks; they name another tree
        for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
            env.pop(name, None)
        argv = ["git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false", *words]
        self._child: subprocess.Popen[bytes] | None = None
        self.words = ""  # what it said beside
        try:
            self._child = subprocess.Popen(
                argv,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except OSError:
            return
        assert self._child.stdout is not None
        # not every system has such pipes, or allows them
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(self._child.stdout, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def output(self) -> bytes | None:
        if self._child is None:
            return None
        try:
            data, words = self._child.communicate(timeout=CODE_GIT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.communicate()
            return None
        self.words = words.decode("utf-8", "surrogateescape")
        return data if self._child.returncode == 0 else None


def _names(data: bytes, below: str) -> list[str]:
    """In order: their files lie beside each other on the disk, and can be compared with a list of
    last time.
    """
    # in a merge a file stands there thrice
    names = dict.fromkeys(data.decode("utf-8", "surrogateescape").split("\0"))
    names.pop("", None)
    return sorted(below + name for name in names) if below else sorted(names)


class _Listing:
    """Tracked files and untracked ones that are not ignored, as git lists them: asked for at once
    and taken later.
    """

    def __init__(self, root: str, below: str = "") -> None:
        self._below = below
        self.unread: list[tuple[str, str]] = []  # folders that git passed over, and why
        self._asked = _Git(os.path.join(root, below), "ls-files", "-co", "--exclude-standard", "-z")

    def take(self) -> list[str] | None:
        """None where this is no git work tree."""
        data = self._asked.output()
        self.unread = [
            (self._below + name, f"it cannot be read: {why}")
            for name, why in _UNREAD.findall(self._asked.words)
        ]
        return None if data is None else _names(data, self._below)


def ignored_by_git(root: str) -> list[str]:
    """What git leaves out, whole folders as one; for `hw init`."""
    data = git(root, "ls-files", "-oi", "--exclude-standard", "--directory", "-z") or b""
    return sorted(name for name in data.decode("utf-8", "surrogateescape").split("\0") if name)


# -- without git


class _Layers:
    """What we leave out by ourselves, and the ignore files of a tree: a later one of `names` is the
    stronger one.
    """

    def __init__(self, root: str, names: Sequence[str], data: Sequence[str] = ()) -> None:
        self._root, self._names, self._data = root, names, data
        self._ignored = Ignored()
        self._lines: list[str] = []

    def enter(self, folder: str) -> None:
        base = f"{folder}/" if folder else ""
        lines = [*LEFT_BEHIND, *self._data] if not folder else []
        for name in self._names:
            lines += read_lines(os.path.join(self._root, base + name))
        self._lines += [base, *lines]
        self._ignored.add(Rules(lines, base))

    def rules(self, *more: str) -> str:
        """The same words for the same rules."""
        return hashlib.sha256(
            "\0".join([*more, *self._lines]).encode("utf-8", "surrogateescape")
        ).hexdigest()

    def ignores(self, path: str, is_folder: bool = False) -> bool:
        if path[-1] == "/":  # a nested repository, as git names it
            return self._ignored.ignores(path[:-1], True)
        return self._ignored.ignores(path, is_folder)


def read_lines(path: str) -> list[str]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return []
        data = file.read(CODE_IGNORE_BYTES_MAX + 1)
    if len(data) > CODE_IGNORE_BYTES_MAX:
        raise RefusedError(f"{path} is too large: at most {CODE_IGNORE_BYTES_MAX} bytes")
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").split("\n")


def data_patterns(root: str) -> list[str]:
    """What is data or was built, in a tree that git does not know."""
    found = []
    for name in DATA_FOLDERS:
        if os.path.islink(os.path.join(root, name)):
            continue  # a link is judged by where it leads
        try:
            with os.scandir(os.path.join(root, name)) as entries:
                is_code = any(entry.name.endswith(".py") for entry in entries)
        except OSError:  # it is not there, or no folder
            continue
        if not is_code:
            found.append(f"/{name}/")
    return [*found, *BUILT]


def _walk(root: str, ignored: _Layers, skipped: set[str]) -> Iterator[str]:
    waiting = [""]
    count = 0
    while waiting:
        folder = waiting.pop()
        ignored.enter(folder)
        base = f"{folder}/" if folder else ""
        try:
            entries = list(os.scandir(os.path.join(root, folder)))
        except OSError as error:
            raise RefusedError(
                f"the folder {base or root} cannot be read: {error.strerror}",
                f"leave it out in {HWIGNORE}",
            ) from None
        for entry in entries:
            path = base + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if path in skipped or ignored.ignores(path, is_folder):
                continue
            if is_folder:
                waiting.append(path)
                continue
            count += 1
            if count > CODE_WALKED_MAX:
                raise RefusedError(
                    f"{root} has more than {CODE_WALKED_MAX} files that are not ignored",
                    f"go to the folder of your code, or name what does not belong to it in {HWIGNORE}",
                )
            yield path


def _included(root: str, patterns: Sequence[str], skipped: set[str]) -> set[str]:
    """Files that a pattern names, or that lie below a folder that it names, ignored or not."""
    found: set[str] = set()
    for pattern in patterns:
        wanted = Ignored()
        wanted.add(Rules([pattern]))
        start = _fixed_part(pattern)
        start_path = os.path.join(root, start)
        if os.path.lexists(start_path) and not os.path.isdir(start_path):
            found.add(start)
            continue
        for folder, folders, names in os.walk(start_path):
            base = os.path.relpath(folder, root)
            base = "" if base == "." else f"{base}/"
            folders[:] = [name for name in folders if name != ".git" and base + name not in skipped]
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            for name in (*names, *links):
                if wanted.ignores(base + name):
                    found.add(base + name)
    return found


def _fixed_part(pattern: str) -> str:
    """The folder, or the file, that a pattern surely lies in."""
    parts = pattern.strip("/").split("/")
    if len(parts) == 1 and not pattern.startswith("/"):
        return ""  # a bare name is looked for everywhere
    plain: list[str] = []
    for part in parts:
        if part in ("..", ".") or any(char in part for char in "*?[\\"):
            break
        plain.append(part)
    return "/".join(plain)
