"""Whose files these are, and who else can change them: a home, a settings file, a project's file.

What is in a home becomes commands that run as its owner, and so does what stands in a settings
file. So both are used only where nobody else can write them: `check_home` is called for every
command and by the server, `check_file` for each settings file that is read. Root and sticky folders
above are fine, and so is the owner's own private group (umask 002, as many systems have it).
A few `stat` calls: a command waits less than a millisecond for them.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from headway.model.errors import RefusedError

# Owner of files that a user namespace has no name for: those of root outside a container.
_OVERFLOW_UID = 65534
# Entries of a home that may be opened to others on purpose: results, not commands.
_SHARED = frozenset({"output"})


def make_private(path: Path) -> None:
    """Make a folder and those above it that are missing, each 0700, whatever the umask is."""
    missing = []
    at = path
    while not at.exists():
        missing.append(at)
        at = at.parent
    for folder in reversed(missing):
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            continue  # another process was faster
        if stat.S_IMODE(os.stat(folder).st_mode) & 0o700 != 0o700:
            os.chmod(folder, 0o700)  # a umask that takes away the owner's own bits
    if not path.is_dir():
        raise NotADirectoryError(20, os.strerror(20), str(path))


def others_can_write(found: os.stat_result) -> bool:
    """By the mode: everybody, or a group that is not the owner's alone. An access list shows as the
    group's bits.
    """
    if stat.S_ISLNK(found.st_mode):
        return False  # what it points to counts
    if found.st_mode & 0o002:
        return True
    return bool(found.st_mode & 0o020) and not _is_private_group(found.st_gid)


def _is_private_group(gid: int) -> bool:
    import grp
    import pwd

    try:
        account, group = pwd.getpwuid(os.getuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return (
        gid == account.pw_gid
        and group.gr_name == account.pw_name
        and set(group.gr_mem) <= {account.pw_name}
    )


def home_problem(home: Path) -> tuple[str, str] | None:
    """What is wrong with a home, and what to type; None where it is its owner's alone."""
    try:
        found = os.stat(home)
    except FileNotFoundError:
        return None  # not made yet
    except OSError as error:
        return f"{home} cannot be looked at: {error.strerror}", _ANOTHER_HOME
    if not stat.S_ISDIR(found.st_mode):
        return f"{home} is not a folder", _ANOTHER_HOME
    if found.st_uid != os.getuid():
        return (
            f"{home} belongs to {_name(found.st_uid)}; what is in it would run as you",
            f"{_ANOTHER_HOME}; if it is yours all the same: chown -R {os.getuid()} {_quoted(home)}",
        )
    if others_can_write(found):
        return (
            f"{home} can be written by others (mode {stat.S_IMODE(found.st_mode):04o}); "
            "what they put there would run as you",
            f"look what is in it, then: chmod 700 {_quoted(home)}",
        )
    return _problem_above(home) or _problem_inside(home)


_ANOTHER_HOME = "set HEADWAY_HOME to a folder of yours"


def _problem_above(home: Path) -> tuple[str, str] | None:
    """A folder above that everybody can write to lets anybody put another home in its place."""
    above = dict.fromkeys([*home.parents, *Path(os.path.realpath(home)).parents])
    for folder in above:
        found = os.stat(folder)
        if found.st_mode & 0o002 and not found.st_mode & stat.S_ISVTX:
            mode = stat.S_IMODE(found.st_mode)
            return (
                f"anybody can write to {folder} (mode {mode:04o}), and so put another {home} in place of yours",
                f"chmod o-w {_quoted(folder)}, or set HEADWAY_HOME to a folder elsewhere",
            )
    return None


def _problem_inside(home: Path) -> tuple[str, str] | None:
    """The first entry of a home, or of its database's folder, that is not its owner's alone."""
    trusted = {os.getuid(), 0}
    with os.scandir(home) as entries:
        for entry in entries:
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # a file that was just renamed
            if problem := _entry_problem(entry.path, found, trusted, entry.name in _SHARED):
                return problem
    if not (home / "database.json").exists():
        return None
    from headway.home.paths import Paths

    database = Paths(home).db
    for path in (database.parent, database, Path(f"{database}-wal")):
        try:
            found = os.stat(path)
        except OSError:
            continue  # the server says what it needs
        if problem := _entry_problem(str(path), found, trusted, shared=False):
            return problem
    return None


def _entry_problem(
    path: str, found: os.stat_result, trusted: set[int], shared: bool
) -> tuple[str, str] | None:
    if found.st_uid not in trusted:
        return (
            f"{path} belongs to {_name(found.st_uid)}, in a home of yours",
            f"it is not used; look at it, then move it away: mv {_quoted(path)} /tmp, "
            f"or make it yours: chown -R {os.getuid()} {_quoted(path)}",
        )
    if not shared and others_can_write(found):
        mode = stat.S_IMODE(found.st_mode)
        return (
            f"{path} can be written by others (mode {mode:04o})",
            f"look at it, then: chmod go-w {_quoted(path)}",
        )
    return None


def check_home(home: Path) -> None:
    """Refuse a home that is somebody else's, or that others can write to."""
    if problem := home_problem(home):
        raise RefusedError(*problem)


def is_mine(found: os.stat_result) -> bool:
    """Whether an open file may be believed: the owner's or root's, and nobody else can write it."""
    return found.st_uid in (os.getuid(), 0) and not others_can_write(found)


def file_problem(path: Path) -> str:
    """Why a settings file is not to be obeyed; empty where it may be."""
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        return ""  # /dev/null, a pipe of the person's own
    if found.st_uid not in (os.getuid(), 0, _OVERFLOW_UID if os.getuid() else 0):
        return f"{path} belongs to {_name(found.st_uid)}"
    if others_can_write(found):
        return f"{path} can be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def check_file(path: Path) -> None:
    """Refuse a settings file of the person's own that somebody else can write."""
    if problem := file_problem(path):
        raise RefusedError(f"{problem}; it was not read", f"chmod go-w {_quoted(path)}")


def _name(uid: int) -> str:
    import pwd

    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _quoted(path: "Path | str") -> str:
    import shlex

    return shlex.quote(str(path))
