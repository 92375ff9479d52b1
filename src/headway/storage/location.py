"""A place in storage, as a person writes it: `az://container/path`, `s3://bucket/path`,
`file:///path` or a path.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from headway.model.errors import UsageError

AZURE, S3, LOCAL = "azure", "s3", "local"
SCHEMES: Final = {"az": AZURE, "azure": AZURE, "s3": S3, "file": LOCAL}


@dataclass(frozen=True)
class Place:
    kind: str
    # of Azure, or the bucket of S3; of a local place, the folder that `path` lies in
    container: str
    path: str  # below it; "" is all of it

    def __str__(self) -> str:
        if self.kind == LOCAL:
            return os.path.join(self.container, self.path) if self.path else self.container
        return f"{'az' if self.kind == AZURE else 's3'}://{self.container}/{self.path}"

    def below(self, name: str) -> "Place":
        return Place(self.kind, self.container, f"{self.path.rstrip('/')}/{name}".lstrip("/"))


def parse(text: str) -> Place:
    scheme, found, rest = text.partition("://")
    if not found:
        return _local(text)
    kind = SCHEMES.get(scheme)
    if kind is None:
        raise UsageError(
            f'"{text[:80]}" has an unknown kind of storage',
            "known: az://container/path, s3://bucket/path, file:///path",
        )
    if kind == LOCAL:
        return _local(rest)
    container, _, path = rest.partition("/")
    if not container or any(part in (".", "..") for part in path.split("/")) or "\0" in path:
        raise UsageError(
            f'"{text[:80]}" is not a place in storage',
            f"for example: {scheme}://container/folder/file",
        )
    return Place(kind, container, path)


def _local(text: str) -> Place:
    folder, name = os.path.split(os.path.abspath(os.path.expanduser(text)))
    return Place(LOCAL, folder, name)


def safe_name(name: str) -> str:
    """A name from a listing, as a relative path on this machine; what would leave the folder is
    refused (B20).
    """
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise UsageError(
            f"the name {name[:200]!r} in storage would not stay in the folder; it is not fetched"
        )
    return os.path.join(*parts)
