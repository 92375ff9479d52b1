"""A pack: many contents in one file, found by their digests. Written once, never changed. Called by `depot.py`.

    "HWPACK1\\n"  contents, one after the other  index: (digest 32, offset u64, size u64) …, sorted by digest
    footer: count u64, SHA-256 of the index 32, "HWPACKE\\n"

One file with one sync takes a tree of 50,000 files in a second or two; a file for each of them takes minutes.
"""

from __future__ import annotations

import hashlib
import os
import struct
from typing import BinaryIO, Final

from headway.model.errors import DamagedError
from headway.model.undo import UndoOnFailure

HEAD: Final = b"HWPACK1\n"
TAIL: Final = b"HWPACKE\n"
_ENTRY: Final = struct.Struct(">32sQQ")
_FOOTER: Final = struct.Struct(">Q32s8s")
_COPY_BYTES: Final = 1 << 20


class PackWriter:
    """Contents into a file that the caller has opened; nothing counts before `finish`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._entries: dict[bytes, tuple[int, int]] = {}
        self._offset = len(HEAD)
        file.write(HEAD)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._entries

    @property
    def size(self) -> int:
        return self._offset - len(HEAD)

    def add(self, digest: bytes, data: bytes) -> None:
        if digest not in self._entries:
            self._file.write(data)
            self._entries[digest] = (self._offset, len(data))
            self._offset += len(data)

    def copy(self, fd: int) -> tuple[bytes, int]:
        """A large file, piece by piece; its digest and size as they were read."""
        hasher, start = hashlib.sha256(), self._offset
        while piece := os.read(fd, _COPY_BYTES):
            hasher.update(piece)
            self._file.write(piece)
            self._offset += len(piece)
        digest = hasher.digest()
        self._entries.setdefault(digest, (start, self._offset - start))
        return digest, self._offset - start

    def finish(self) -> None:
        """Index and footer; synced."""
        index = b"".join(
            _ENTRY.pack(digest, *place) for digest, place in sorted(self._entries.items())
        )
        self._file.write(
            index + _FOOTER.pack(len(self._entries), hashlib.sha256(index).digest(), TAIL)
        )
        self._file.flush()
        os.fsync(self._file.fileno())


class Pack:
    """A finished pack, opened for reading."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        # whatever it was, the descriptor must not leak
        with UndoOnFailure(os.close, self._fd):
            self.entries = self._load()

    def _load(self) -> dict[bytes, tuple[int, int]]:
        size = os.fstat(self._fd).st_size
        least = len(HEAD) + _FOOTER.size
        footer = os.pread(self._fd, _FOOTER.size, size - _FOOTER.size) if size >= least else b""
        if len(footer) != _FOOTER.size:
            raise self._damaged()
        count, check, tail = _FOOTER.unpack(footer)
        begin = size - _FOOTER.size - count * _ENTRY.size
        if tail != TAIL or begin < len(HEAD):
            raise self._damaged()
        index = os.pread(self._fd, count * _ENTRY.size, begin)
        if hashlib.sha256(index).digest() != check:
            raise self._damaged()
        return {digest: (offset, length) for digest, offset, length in _ENTRY.iter_unpack(index)}

    def read(self, digest: bytes) -> bytes:
        """A content, checked: damage is told, never handed on."""
        offset, size = self.entries[digest]
        data = os.pread(self._fd, size, offset)
        while len(data) < size and (
            more := os.pread(self._fd, size - len(data), offset + len(data))
        ):
            data += more
        if hashlib.sha256(data).digest() != digest:
            raise self._damaged(digest)
        return data

    def _damaged(self, digest: bytes | None = None) -> DamagedError:
        what = "its index" if digest is None else f"the content {digest.hex()[:12]}"
        return DamagedError(
            f"{self.path}: {what} is damaged", "the snapshots in it must be made again"
        )

    def close(self) -> None:
        os.close(self._fd)
