"""A snapshot's manifest: every file with its kind, digest and size, in a fixed order. Its own digest is the snapshot's.

    headway-code 1\\n
    KIND DIGEST SIZE PATH\\0 …          kind: f a file, x an executable one, l a link whose content is its target

Sorted, so that the same files always give the same bytes. Read by `depot.py` and `checkout.py`; nothing in one is
believed: a path that leaves the tree, or that goes through a link, makes the whole manifest damaged.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from headway.model.errors import DamagedError, VersionError
from headway.model.limits import CODE_FILES_MAX

HEAD: Final = b"headway-code 1\n"
FILE, EXECUTABLE, LINK = "f", "x", "l"
_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")


class Entry(NamedTuple):
    path: str
    kind: str
    digest: str
    size: int


def is_digest(text: object) -> bool:
    return isinstance(text, str) and _DIGEST.match(text) is not None


def encode(entries: Iterable[Entry]) -> bytes:
    lines = [f"{e.kind} {e.digest} {e.size} {e.path}\0" for e in sorted(entries)]
    return HEAD + "".join(lines).encode("utf-8", "surrogateescape")


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def parse(data: bytes, digest: str) -> list[Entry]:
    """Raises DamagedError for what is not exactly the manifest of this digest."""
    if digest_of(data) != digest:
        raise DamagedError(
            f"the manifest of snapshot {digest[:12]} is damaged", "make a new one: hw init"
        )
    if not data.startswith(HEAD):
        raise VersionError(f"the snapshot {digest[:12]} was made by another version of Headway")
    lines = data[len(HEAD) :].decode("utf-8", "surrogateescape").split("\0")
    if lines.pop() != "" or len(lines) > CODE_FILES_MAX:
        raise DamagedError(
            f"the manifest of snapshot {digest[:12]} has no proper end, or too many files"
        )
    entries = []
    for line in lines:
        kind, _, rest = line.partition(" ")
        name, _, rest = rest.partition(" ")
        size, _, path = rest.partition(" ")
        if (
            kind not in (FILE, EXECUTABLE, LINK)
            or not is_digest(name)
            or not (size.isascii() and size.isdigit())
        ):
            raise DamagedError(f"the manifest of snapshot {digest[:12]} has a bad line")
        entries.append(Entry(path, kind, name, int(size)))
    _check_paths(entries, digest)
    return entries


def _check_paths(entries: list[Entry], digest: str) -> None:
    """Every path stays inside, stands once, and has only folders above it (B20, B22)."""
    taken = {entry.path for entry in entries}
    folders: set[str] = set()
    bad = len(taken) != len(entries)
    for path in taken:
        parent = path.rpartition("/")[0]
        parts = path.split("/")
        bad = bad or any(part in ("", ".", "..") for part in parts)
        while parent and parent not in folders:
            folders.add(parent)
            parent = parent.rpartition("/")[0]
    if bad or folders & taken:
        raise DamagedError(
            f"the manifest of snapshot {digest[:12]} names a path that it must not name"
        )
