"""Listing, sending, fetching and removing. Called by `hw storage`, and by the carrier of a job's
folders.

A transfer that was cut off goes on when it is repeated: files that are there already are passed
over, and a file that was half fetched goes on where it stopped. An object appears in storage whole
or not at all.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from headway.model.errors import HeadwayError, RefusedError
from headway.model.limits import (
    MIB,
    STORAGE_CHUNK_BYTES,
    STORAGE_LISTED_MAX,
    STORAGE_RETRY_S,
    STORAGE_THREADS,
)
from headway.storage import open_store as accounts
from headway.storage.location import LOCAL, Place, safe_name

Report = Callable[[int, int], None]  # (files, bytes) more


@dataclass(frozen=True, slots=True)
class Thing:
    """An object, or a folder of them."""

    name: str  # below the place that was asked for
    size: int | None  # None: a folder
    modified: datetime | None = None
    tag: str = ""


@dataclass(slots=True)
class Outcome:
    files: int = 0
    bytes: int = 0
    passed_over: int = 0  # were there already


class Storage:
    """One place, opened. `account` holds its keys."""

    def __init__(
        self, place: Place, account: Mapping[str, str], retry_s: float = STORAGE_RETRY_S
    ) -> None:
        self.place, self.account = place, account
        self._lib = accounts.library()
        self._store = accounts.open_store(place, account, retry_s)

    def _ask(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except HeadwayError:
            raise
        # whatever the library raises is told in words, with the keys taken out
        except Exception as error:
            raise accounts.explain(error, self.place, self.account) from None

    # -- looking

    def one(self, path: str) -> Thing | None:
        """The object of exactly this name."""
        if not path or path.endswith("/"):
            return None
        try:
            meta = self._lib.head(self._store, path)
        # a missing object, and a folder on a local disk, come in several classes
        except Exception as error:
            found = accounts.explain(error, self.place, self.account)
            if found.code == "not_found" or self.place.kind == LOCAL:
                return None
            raise found from None
        return Thing(
            path.rpartition("/")[2],
            meta["size"],
            meta["last_modified"],
            str(meta.get("e_tag") or ""),
        )

    def listing(self) -> list[Thing]:
        """What lies directly there: folders, then objects."""
        prefix = self.place.path.rstrip("/")
        found = self._ask(lambda: self._lib.list_with_delimiter(self._store, prefix or None))
        cut = len(prefix) + 1 if prefix else 0
        folders = [Thing(path[cut:].rstrip("/") + "/", None) for path in found["common_prefixes"]]
        things = [_thing(meta, cut) for meta in found["objects"]]
        if not folders and not things:
            single = self.one(self.place.path)
            return [single] if single is not None else []
        return sorted(folders, key=lambda t: t.name) + sorted(things, key=lambda t: t.name)

    def has_something(self) -> bool:
        """One look, whatever lies there."""
        prefix = self.place.path.rstrip("/")
        found = self._ask(
            lambda: next(iter(self._lib.list(self._store, prefix or None, chunk_size=1)), None)
        )
        return bool(found) or self.one(self.place.path) is not None

    def everything(self) -> dict[str, Thing]:
        """Every object below, by its name; or the one object of that name, under the name ""."""
        single = self.one(self.place.path)
        if single is not None:
            return {"": single}
        prefix = self.place.path.rstrip("/")
        cut = len(prefix) + 1 if prefix else 0

        def work() -> dict[str, Thing]:
            found: dict[str, Thing] = {}
            for batch in self._lib.list(self._store, prefix or None, chunk_size=1000):
                found.update((meta["path"][cut:], _thing(meta, cut)) for meta in batch)
                if len(found) > STORAGE_LISTED_MAX:
                    raise RefusedError(
                        f"{self.place} has more than {STORAGE_LISTED_MAX:,} objects",
                        "name a part of it",
                    )
            return found

        found: dict[str, Thing] = self._ask(work)
        return found

    # -- sending and fetching

    def upload(self, files: Mapping[str, str], report: Report) -> Outcome:
        """`files`: name below the place ("" for the place itself) → local path."""
        there = self.everything()
        outcome = Outcome()
        todo = []
        for name, path in files.items():
            status = os.stat(path)
            old = there.get(name)
            if (
                old is not None
                and old.size == status.st_size
                and _is_newer(old.modified, status.st_mtime)
            ):
                outcome.passed_over += 1
                report(1, status.st_size)
            else:
                todo.append((name, path))
        for size in self._each(todo, lambda pair: self.send(pair[0], pair[1], report)):
            outcome.files += 1
            outcome.bytes += size
        return outcome

    def send(self, name: str, path: str, report: Report) -> int:
        """One file, whole; its size."""
        target = self.place.below(name).path if name else self.place.path
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            large = size > STORAGE_CHUNK_BYTES
            self._ask(
                lambda: self._lib.put(
                    self._store,
                    target,
                    file,
                    use_multipart=large,
                    chunk_size=STORAGE_CHUNK_BYTES,
                    max_concurrency=4,
                )
            )
        report(1, size)
        return size

    def download(
        self, target: str, report: Report, chosen: Mapping[str, Thing] | None = None
    ) -> Outcome:
        """Everything below into the folder `target`; a single object into a file of that name, or
        in that folder.
        """
        found = self.everything() if chosen is None else chosen
        outcome = Outcome()
        todo = []
        for name, thing in found.items():
            local = _local_path(target, name, thing)
            if _is_there(local, thing):
                outcome.passed_over += 1
                report(1, thing.size or 0)
            else:
                todo.append((name, thing, local))
        for size in self._each(todo, lambda item: self._fetch(item[0], item[1], item[2], report)):
            outcome.files += 1
            outcome.bytes += size
        return outcome

    def _fetch(self, name: str, thing: Thing, local: str, report: Report) -> int:
        os.makedirs(os.path.dirname(local) or ".", exist_ok=True)
        source = self.place.below(name).path if name else self.place.path
        size = thing.size or 0
        # the tag stands in the draft's name: what was fetched of an older object is not gone on
        # with
        mark = hashlib.sha256(f"{thing.tag} {size} {thing.modified}".encode()).hexdigest()[:12]
        draft = os.path.join(
            os.path.dirname(local), f".{os.path.basename(local)[:200]}.{mark}.part"
        )
        with open(draft, "ab") as file:
            done = file.tell()
            report(0, done)
            while done < size:
                length = min(8 * MIB, size - done)
                data = self._ask(
                    partial(self._lib.get_range, self._store, source, start=done, length=length)
                )
                if not len(data):
                    break
                file.write(data)
                done += len(data)
                report(0, len(data))
            if done != size:
                raise RefusedError(
                    f"{self.place.below(name)} changed while it was fetched", "fetch it again"
                )
        if thing.modified is not None:
            stamp = thing.modified.timestamp()
            os.utime(draft, (stamp, stamp))
        os.replace(draft, local)
        report(1, 0)
        return size

    def _each(self, items: Iterable[Any], work: Callable[[Any], int]) -> list[int]:
        with ThreadPoolExecutor(STORAGE_THREADS) as pool:
            return list(pool.map(work, items))

    # -- the rest

    def remove(self, names: Iterable[str]) -> int:
        paths = [self.place.below(name).path if name else self.place.path for name in names]
        for start in range(0, len(paths), 1000):
            self._ask(partial(self._lib.delete, self._store, paths[start : start + 1000]))
        return len(paths)

    def url(self, expires_s: float) -> str:
        """An address that anybody can fetch the object from, for a while."""
        if self.place.kind == LOCAL:
            return f"file://{self.place}"
        if self.one(self.place.path) is None:
            raise accounts.explain(FileNotFoundError(), self.place)
        found: str = self._ask(
            lambda: self._lib.sign(
                self._store, "GET", self.place.path, timedelta(seconds=expires_s)
            )
        )
        return found


def _thing(meta: Any, cut: int) -> Thing:
    return Thing(
        meta["path"][cut:], meta["size"], meta["last_modified"], str(meta.get("e_tag") or "")
    )


def _is_newer(modified: datetime | None, mtime: float) -> bool:
    return modified is not None and modified >= datetime.fromtimestamp(mtime, UTC) - timedelta(
        seconds=1
    )


def _local_path(target: str, name: str, thing: Thing) -> str:
    if name:
        return os.path.join(target, safe_name(name))
    return os.path.join(target, safe_name(thing.name)) if os.path.isdir(target) else target


def _is_there(local: str, thing: Thing) -> bool:
    """Fetched before: the size and the time are the object's."""
    try:
        status = os.stat(local)
    except OSError:
        return False
    same_time = (
        thing.modified is not None and abs(status.st_mtime - thing.modified.timestamp()) < 1.0
    )
    return status.st_size == thing.size and same_time


def local_files(paths: Iterable[str]) -> dict[str, str]:
    """Files and folders as they are named below the target; links to folders are not followed."""
    found: dict[str, str] = {}
    for path in paths:
        if not os.path.isdir(path):
            found[os.path.basename(path)] = path
            continue
        for folder, _, names in os.walk(path):
            base = os.path.relpath(folder, path)
            for name in names:
                full = os.path.join(folder, name)
                if os.path.isfile(full):
                    found[name if base == "." else f"{base}/{name}"] = full
    return found
