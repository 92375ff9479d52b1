"""Patterns of `.gitignore`, as git reads them (gitignore(5)). Called by `tree.py`.

Rules     the patterns of one file, which hold below the folder that the file lies in
Ignored   many of them: deeper files win, the last pattern of a file wins, and what lies in an ignored folder
          cannot be taken back
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

_POSIX: Final = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "space": r"\s",
    "punct": r"!-/:-@\[-`{-~", "xdigit": "0-9a-fA-F", "blank": r" \t", "cntrl": r"\x00-\x1f\x7f",
    "print": r"\x20-\x7e", "graph": r"\x21-\x7e",
}  # fmt: skip
_NEVER: Final = r"(?!)"


class Pattern(NamedTuple):
    regex: re.Pattern[str]
    takes_back: bool  # it began with "!"
    folders_only: bool
    on_path: bool  # matched with the path below the file's folder; else with the last name alone


def parse(line: str) -> Pattern | None:
    """One line of an ignore file; None for blank lines and comments."""
    line = _without_trailing_blanks(line.rstrip("\r\n"))
    if not line or line.startswith("#"):
        return None
    takes_back = line.startswith("!")
    line = line[1:] if takes_back else line
    folders_only = line.endswith("/")
    line = line[:-1] if folders_only else line
    on_path = "/" in line
    line = line.removeprefix("/")
    if not line:
        return None
    return Pattern(re.compile(translate(line), re.DOTALL), takes_back, folders_only, on_path)


def _without_trailing_blanks(line: str) -> str:
    bare = line.rstrip(" ")
    if bare == line:
        return line
    slashes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if slashes % 2 else bare  # the backslash keeps one blank


@lru_cache(maxsize=4096)
def translate(pattern: str) -> str:
    """A regular expression that matches whole texts, as git's wildmatch does with paths."""
    out, i = [], 0
    while i < len(pattern):
        char = pattern[i]
        if char == "*":
            piece, i = _stars(pattern, i)
        elif char == "?":
            piece, i = "[^/]", i + 1
        elif char == "[":
            found = _bracket(pattern, i)
            if found is None:
                return _NEVER  # never closed: git matches nothing with it
            piece, i = found
        elif char == "\\":
            if i + 1 == len(pattern):
                return _NEVER
            piece, i = re.escape(pattern[i + 1]), i + 2
        else:
            piece, i = re.escape(char), i + 1
        out.append(piece)
    return "".join(out) + r"\Z"


def _stars(pattern: str, i: int) -> tuple[str, int]:
    """`**` counts only as a whole part of the path: then it crosses slashes."""
    end = i
    while pattern[end : end + 1] == "*":
        end += 1
    starts_part = i == 0 or pattern[i - 1] == "/"
    ends_part = pattern[end : end + 1] in ("", "/")
    if end - i != 2 or not starts_part or not ends_part:
        return "[^/]*", end
    if end < len(pattern):
        return "(?:.*/)?", end + 1
    if i == 0:
        return ".*", end
    return ".+", end


def _bracket(pattern: str, i: int) -> tuple[str, int] | None:
    """A class such as `[a-z]`, `[!a]` or `[[:digit:]]`; it never matches a slash."""
    i += 1
    negated = i < len(pattern) and pattern[i] in "!^"
    i += negated
    items: list[str] = []
    first = True
    while i < len(pattern) and (first or pattern[i] != "]"):
        first = False
        if pattern.startswith("[:", i) and (close := pattern.find(":]", i)) > 0:
            name = pattern[i + 2 : close]
            if name not in _POSIX:
                return None
            items.append(_POSIX[name])
            i = close + 2
            continue
        low, i = _char(pattern, i)
        if i + 1 < len(pattern) and pattern[i] == "-" and pattern[i + 1] != "]":
            high, i = _char(pattern, i + 1)
            if low <= high:
                items.append(f"{re.escape(low)}-{re.escape(high)}")
            continue
        items.append(re.escape(low))
    if i >= len(pattern):
        return None
    body = "".join(items)
    if negated:
        return f"[^/{body}]", i + 1
    return (f"(?!/)[{body}]" if body else _NEVER), i + 1


def _char(pattern: str, i: int) -> tuple[str, int]:
    if pattern[i] == "\\" and i + 1 < len(pattern):
        return pattern[i + 1], i + 2
    return pattern[i], i + 1


class Rules:
    """The patterns of one file. `base` is its folder, "" or ending in a slash."""

    def __init__(self, lines: Iterable[str], base: str = "", origin: str = "") -> None:
        self.base, self.origin = base, origin
        self.patterns = [pattern for line in lines if (pattern := parse(line)) is not None]
        self._quick = _joined(p.regex.pattern for p in self.patterns if not p.on_path)
        self._names: dict[str, bool] = {}  # names repeat; a dictionary is faster than an expression
        self._quick_path = _joined(p.regex.pattern for p in self.patterns if p.on_path)

    def verdict(self, path: str, name: str, is_folder: bool) -> bool | None:
        """Whether this path itself is ignored; None: no pattern says anything."""
        by_name = self._names.get(name)
        if by_name is None:
            by_name = self._quick is not None and self._quick.match(name) is not None
            self._names[name] = by_name
        below = path[len(self.base) :]
        by_path = self._quick_path is not None and self._quick_path.match(below) is not None
        if not by_name and not by_path:
            return None  # nearly always; one search in place of one for each pattern

        for pattern in reversed(self.patterns):
            if pattern.folders_only and not is_folder:
                continue
            subject = below if pattern.on_path else name
            if pattern.regex.match(subject):
                return not pattern.takes_back
        return None


def _joined(sources: Iterable[str]) -> re.Pattern[str] | None:
    found = [f"(?:{source})" for source in sources]
    return re.compile("|".join(found), re.DOTALL) if found else None


class Ignored:
    """All ignore files of one kind in a tree. Add what a folder has before anything in it is asked
    about.
    """

    def __init__(self) -> None:
        self._by_folder: dict[str, Rules] = {}
        self._folders: dict[str, bool] = {"": False}
        self._chains: dict[str, tuple[Rules, ...]] = {}  # what holds in a folder, the deepest first

    def add(self, rules: Rules) -> None:
        if rules.patterns:
            self._by_folder[rules.base.rstrip("/")] = rules

    def ignores(self, path: str, is_folder: bool = False) -> bool:
        """Whether `path`, or a folder above it, is ignored."""
        parent, _, name = path.rpartition("/")
        known = self._folders.get(parent)
        if known is None:
            known = self._folders[parent] = self.ignores(parent, True)
        if known:
            return True
        chain = self._chains.get(parent)
        if chain is None:
            chain = self._chains[parent] = self._chain(parent)
        for rules in chain:
            verdict = rules.verdict(path, name, is_folder)
            if verdict is not None:
                return verdict
        return False

    def _chain(self, folder: str) -> tuple[Rules, ...]:
        found = []
        while True:
            if folder in self._by_folder:
                found.append(self._by_folder[folder])
            if not folder:
                return tuple(found)
            folder = folder.rpartition("/")[0]
