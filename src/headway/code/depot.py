"""The content store of code: packs with contents, and manifests, each under its digest. Called by
`snapshot.py`, `checkout.py`, the server's submission and gc, and engines that carry code to other
machines.

    HOME/code/packs/<32 hex>.pack     contents; a pack is whole or not there
    HOME/code/manifests/<digest>      written after every content in it is durable, so what it names is there
    HOME/code/trees/<hash of a path>  the index of one working tree
    HOME/code/lock                    shared by those who add or read, exclusive for those who remove

To carry a snapshot elsewhere: the receiver's `missing(digests)` says what it lacks, `write_pack`
puts just that into one file, and `take_pack` and `take_manifest` on the other side check every
content before it counts.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from headway.code import manifest
from headway.code.manifest import Entry
from headway.code.pack_file import Pack, PackWriter
from headway.home.ownership import make_private
from headway.home.paths import sync_folder
from headway.model.errors import DamagedError, NotFoundError, UnreachableError
from headway.model.limits import CODE_KEEP_S, CODE_LOCK_S, CODE_PACKS_MAX

_PACK: Final = ".pack"
_DRAFT: Final = ".tmp"
_STEP_S: Final = 0.02


@dataclass(frozen=True)
class Collected:
    """What gc removed, or would remove."""

    snapshots: int
    bytes: int


class Depot:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._packs: dict[str, Pack] = {}

    @property
    def trees(self) -> Path:
        return self.folder / "trees"

    def make(self) -> None:
        for name in ("packs", "manifests", "trees"):
            make_private(self.folder / name)

    @contextmanager
    def locked(self, *, exclusive: bool = False, wait_s: float = CODE_LOCK_S) -> Iterator[None]:
        self.make()
        fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _take(fd, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, wait_s)
            yield
        finally:
            os.close(fd)

    # -- reading

    def _open_packs(self) -> list[Pack]:
        """Every pack, newest first. One that is damaged is passed over: what only it has is then
        missing.
        """
        folder = self.folder / "packs"
        names = (
            {name for name in os.listdir(folder) if name.endswith(_PACK)}
            if folder.is_dir()
            else set()
        )
        for name in set(self._packs) - names:
            self._packs.pop(name).close()
        for name in names - set(self._packs):
            try:
                self._packs[name] = Pack(str(folder / name))
            except (DamagedError, FileNotFoundError):
                continue
        return list(self._packs.values())

    def known(self) -> set[bytes]:
        return {digest for pack in self._open_packs() for digest in pack.entries}

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Which of these contents are not here."""
        packs = self._open_packs()
        return [
            d
            for d in dict.fromkeys(digests)
            if not any(bytes.fromhex(d) in p.entries for p in packs)
        ]

    def read(self, digest: str) -> bytes:
        """One content, checked. A damaged copy is passed over when another pack has a good one."""
        raw, trouble = bytes.fromhex(digest), None
        for again in (False, True):
            for pack in self._open_packs() if again else list(self._packs.values()):
                if raw in pack.entries:
                    try:
                        return pack.read(raw)
                    except DamagedError as error:
                        trouble = error
        raise trouble or DamagedError(
            f"the content {digest[:12]} is not in {self.folder}", "make a new snapshot"
        )

    def has(self, digest: str) -> bool:
        return manifest.is_digest(digest) and (self.folder / "manifests" / digest).is_file()

    def manifest_bytes(self, digest: str) -> bytes:
        if not manifest.is_digest(digest):
            raise NotFoundError(f"{digest[:80]!r} is not the digest of a snapshot")
        try:
            return (self.folder / "manifests" / digest).read_bytes()
        except FileNotFoundError:
            raise NotFoundError(
                f"the snapshot {digest[:12]} is not here: {self.folder}",
                "it was removed by hw gc, or made in another home",
            ) from None

    def manifest(self, digest: str) -> list[Entry]:
        return manifest.parse(self.manifest_bytes(digest), digest)

    def touch(self, digest: str) -> None:
        """It is wanted again: gc leaves it alone for a while, until a job names it."""
        os.utime(self.folder / "manifests" / digest)

    def pin(self, digest: str) -> bool:
        """Whether it is here; if so it stays for a while, also when gc is at work just now."""
        if not self.has(digest):
            return False
        with self.locked():
            found = self.has(digest)
            if found:
                self.touch(digest)
            return found

    # -- writing

    @contextmanager
    def adding(self) -> Iterator[PackWriter]:
        """A pack that counts once the block has ended well and something is in it."""
        self.make()
        draft = self.folder / "packs" / f"{secrets.token_hex(16)}{_DRAFT}"
        try:
            with _create(draft) as file:
                writer = PackWriter(file)
                yield writer
                if len(writer):
                    writer.finish()
            if len(writer):
                _settle(draft, draft.with_suffix(_PACK))
        finally:
            draft.unlink(missing_ok=True)

    def put_manifest(self, data: bytes) -> str:
        digest = manifest.digest_of(data)
        target = self.folder / "manifests" / digest
        if target.exists():
            os.utime(target)
            return digest
        draft = target.with_name(f"{secrets.token_hex(16)}{_DRAFT}")
        try:
            with _create(draft) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _settle(draft, target)
        finally:
            draft.unlink(missing_ok=True)
        return digest

    # -- to another machine

    def write_pack(self, digests: Iterable[str], target: Path) -> int:
        """These contents as one pack that can travel; its bytes."""
        with self.locked(), _create(target) as file:
            writer = PackWriter(file)
            for digest in digests:
                writer.add(bytes.fromhex(digest), self.read(digest))
            writer.finish()
        return target.stat().st_size

    def take_pack(self, source: Path) -> int:
        """Contents that came from elsewhere; each is checked first. How many there were."""
        with self.locked(), self.adding() as writer:
            pack = Pack(str(source))
            try:
                for digest in pack.entries:
                    writer.add(digest, pack.read(digest))
            finally:
                pack.close()
            return len(writer)

    def take_manifest(self, data: bytes, digest: str) -> None:
        """A manifest that came from elsewhere; it counts only when all that it names is here."""
        entries = manifest.parse(data, digest)
        with self.locked():
            lacking = self.missing(entry.digest for entry in entries)
            if lacking:
                raise NotFoundError(
                    f"{len(lacking)} contents of snapshot {digest[:12]} have not come yet"
                )
            self.put_manifest(data)

    # -- removing

    def collect(
        self, live: Iterable[str], *, dry_run: bool = False, keep_s: float = CODE_KEEP_S
    ) -> Collected:
        """Remove snapshots that no job needs and that were not used for `keep_s`, and what only
        they had.
        """
        if not self.folder.is_dir():
            return Collected(0, 0)
        with self.locked(exclusive=True):
            wanted, old_s = set(live), time.time() - keep_s
            folder = self.folder / "manifests"
            dead = [
                p for p in folder.iterdir() if p.name not in wanted and p.stat().st_mtime < old_s
            ]
            kept = [
                p.name for p in folder.iterdir() if p not in dead and manifest.is_digest(p.name)
            ]
            needed = {
                bytes.fromhex(entry.digest) for name in kept for entry in self._entries_of(name)
            }
            garbage = sum(
                size
                for pack in self._open_packs()
                for digest, (_, size) in pack.entries.items()
                if digest not in needed
            )
            if not dry_run:
                for path in dead:
                    path.unlink()
                self._repack(needed)
                self._sweep()
        return Collected(sum(manifest.is_digest(path.name) for path in dead), garbage)

    def _entries_of(self, digest: str) -> list[Entry]:
        try:
            return self.manifest(digest)
        except DamagedError:
            return []  # it can never be laid out, so nothing is needed for it

    def _repack(self, needed: set[bytes]) -> None:
        """Packs that are mostly garbage, and all of them when there are too many, become one."""
        packs = self._open_packs()
        many = len(packs) > CODE_PACKS_MAX
        old = [pack for pack in packs if many or _live_share(pack, needed) < 0.5]
        with self.adding() as writer:
            for pack in old:
                for digest in needed & set(pack.entries):
                    try:
                        writer.add(digest, pack.read(digest))
                    except DamagedError:
                        # another pack may have it; else it is told when somebody asks for it
                        continue
        for pack in old:
            os.unlink(pack.path)
        self._open_packs()

    def merge(self) -> None:
        """After many small snapshots their packs become one; does nothing while somebody else is at
        work.
        """
        if (
            sum(name.endswith(_PACK) for name in os.listdir(self.folder / "packs"))
            <= CODE_PACKS_MAX
        ):
            return
        try:
            with self.locked(exclusive=True, wait_s=0.0):
                self._repack(self.known())
        except UnreachableError:
            return

    def _sweep(self) -> None:
        """Drafts that a killed process left; nobody else is at work now."""
        for name in ("packs", "manifests", "trees"):
            for path in (self.folder / name).glob(f"*{_DRAFT}"):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        for pack in self._packs.values():
            pack.close()
        self._packs.clear()


def content_digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _live_share(pack: Pack, needed: set[bytes]) -> float:
    total = sum(size + 1 for _, size in pack.entries.values())
    return sum(size + 1 for digest, (_, size) in pack.entries.items() if digest in needed) / max(
        1, total
    )


def _take(fd: int, kind: int, wait_s: float) -> None:
    end_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= end_s:
                raise UnreachableError(
                    "the code store is in use by another command", "try again in a moment"
                ) from None
        time.sleep(_STEP_S)


def _create(path: Path) -> BinaryIO:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    return os.fdopen(fd, "wb", buffering=1 << 20)


def _settle(draft: Path, target: Path) -> None:
    os.rename(draft, target)
    sync_folder(target.parent)
