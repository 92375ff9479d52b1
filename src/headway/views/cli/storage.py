"""`hw storage ls|upload|download|rm|url`: files in S3, Azure Blob or a folder (capability 48)."""

import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headway.model.errors import HeadwayError, NotFoundError, UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import STORAGE_URL_S
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt
from headway.views.text.terminal import Output

if TYPE_CHECKING:
    from headway.storage.transfer import Outcome, Storage, Thing

_STEP_S: Final = 0.2
_ASK_FROM: Final = 2  # objects; one that is named is removed without a question


def command(call: Call) -> int:
    verbs = {"ls": _ls, "upload": _upload, "download": _download, "rm": _rm, "url": _url}
    verb = verbs.get(call.words[0]) if call.words else None
    if verb is None or call.after:
        raise UsageError(
            "hw storage needs one of " + ", ".join(verbs), f"usage: {call.command.usage}"
        )
    return verb(call, call.words[1:])


def _open(call: Call, text: str) -> "Storage":
    from pathlib import Path

    from headway.settings.layers import load
    from headway.storage import location, open_store
    from headway.storage.transfer import Storage

    settings = load(Path(os.getcwd()))
    where = location.parse(text)
    chosen = open_store.choose(where, settings.get("accounts"), call.get("account"))
    return Storage(where, open_store.with_keys(chosen, {**settings.secrets(), **os.environ}))


def _one_place(words: list[str], verb: str) -> str:
    if len(words) != 1:
        raise UsageError(
            f"hw storage {verb} takes one place",
            f"for example: hw storage {verb} s3://bucket/folder",
        )
    return words[0]


def _ls(call: Call, words: list[str]) -> int:
    storage = _open(call, _one_place(words, "ls"))
    things = storage.listing()
    if not things and storage.place.path:
        raise NotFoundError(f"there is nothing at {storage.place}")
    if call.as_json:
        call.terminal.put_json([_row(thing) for thing in things])
        return 0
    for thing in things:
        size = "" if thing.size is None else fmt.size(thing.size)
        when = thing.modified.strftime("%Y-%m-%d %H:%M") if thing.modified else ""
        call.terminal.put(f"{size:>10}  {when:16}  {call.terminal.out.safe(thing.name)}".rstrip())
    return 0


def _row(thing: "Thing") -> JsonObject:
    modified = thing.modified.isoformat().replace("+00:00", "Z") if thing.modified else None
    return {"name": thing.name, "bytes": thing.size, "modified_at": modified}


def _upload(call: Call, words: list[str]) -> int:
    from headway.storage.transfer import local_files

    if len(words) < 2:
        raise UsageError(
            "hw storage upload takes files or folders, and a place", f"usage: {call.command.usage}"
        )
    *sources, target = words
    for path in sources:
        if not os.path.exists(path):
            raise UsageError(f"{path} does not exist")
    storage = _open(call, target)
    single = len(sources) == 1 and os.path.isfile(sources[0]) and not target.endswith("/")
    files = {"": sources[0]} if single else local_files(sources)
    bar = Bar(
        call.terminal.err,
        "upload",
        len(files),
        sum(os.path.getsize(path) for path in files.values()),
    )
    outcome = bar.run(lambda: storage.upload(files, bar.add))
    return _tell(call, "sent", outcome, str(storage.place))


def _download(call: Call, words: list[str]) -> int:
    if not 1 <= len(words) <= 2:
        raise UsageError(
            "hw storage download takes a place, and a folder or file",
            f"usage: {call.command.usage}",
        )
    storage = _open(call, words[0])
    found = storage.everything()
    if not found:
        raise NotFoundError(f"there is nothing at {storage.place}")
    target = words[1] if len(words) == 2 else "."
    bar = Bar(
        call.terminal.err, "download", len(found), sum(thing.size or 0 for thing in found.values())
    )
    outcome = bar.run(lambda: storage.download(target, bar.add, found))
    return _tell(call, "fetched", outcome, os.path.abspath(target))


def _tell(call: Call, verb: str, outcome: "Outcome", where: str) -> int:
    if call.as_json:
        facts = {
            "files": outcome.files,
            "bytes": outcome.bytes,
            "passed_over": outcome.passed_over,
            "place": where,
        }
        call.terminal.put_json(facts)
        return 0
    there = "was" if outcome.passed_over == 1 else "were"
    more = (
        f"; {fmt.plural(outcome.passed_over, 'file')} {there} there already"
        if outcome.passed_over
        else ""
    )
    call.terminal.put(
        f"{verb} {fmt.plural(outcome.files, 'file')}, {fmt.size(outcome.bytes)}{more}"
    )
    return 0


def _rm(call: Call, words: list[str]) -> int:
    storage = _open(call, _one_place(words, "rm"))
    found = storage.everything()
    if not found:
        raise NotFoundError(f"there is nothing at {storage.place}")
    dry = bool(call.get("dry_run"))
    if len(found) >= _ASK_FROM and not dry and not call.get("yes"):
        _ask(call, found, str(storage.place))
    removed = len(found) if dry else storage.remove(found)
    if call.as_json:
        call.terminal.put_json({"removed": 0 if dry else removed, "would_remove": len(found)})
    else:
        call.terminal.put(f"{'would remove' if dry else 'removed'} {fmt.plural(removed, 'object')}")
    return 0


def _ask(call: Call, found: "Mapping[str, Thing]", where: str) -> None:
    what = f"{fmt.plural(len(found), 'object')} with {fmt.size(sum(t.size or 0 for t in found.values()))} at {where}"
    if not (sys.stdin and sys.stdin.isatty()):
        raise UsageError(
            f"this would remove {what}, and there is nobody to ask", "to do it anyway: --yes"
        )
    call.terminal.err.write(f"remove {what} for good? [y/N] ")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise HeadwayError("nothing was done")


def _url(call: Call, words: list[str]) -> int:
    storage = _open(call, _one_place(words, "url"))
    address = storage.url(call.get("expires_s") or STORAGE_URL_S)
    if call.as_json:
        call.terminal.put_json({"url": address})
    else:
        call.terminal.put(address)
    return 0


class Bar:
    """One line on a terminal's stderr that says how far it is; nothing elsewhere."""

    def __init__(self, out: Output, verb: str, files: int, size: int) -> None:
        self._out, self._verb, self._files, self._size = out, verb, files, size
        self._done_files = self._done_bytes = 0
        self._drawn_s = 0.0
        self._lock = threading.Lock()

    def add(self, files: int, size: int) -> None:
        with self._lock:
            self._done_files += files
            self._done_bytes += size
            if self._out.is_tty and time.monotonic() - self._drawn_s > _STEP_S:
                self._drawn_s = time.monotonic()
                self._out.control("\r\x1b[K")
                self._out.write(self.text())

    def text(self) -> str:
        part = (
            self._done_bytes / self._size if self._size else self._done_files / max(1, self._files)
        )
        filled = "━" * int(20 * min(1.0, part))
        sizes = f"{fmt.size(self._done_bytes)} of {fmt.size(self._size)}"
        return f"{self._verb} {filled:─<20} {100 * min(1.0, part):3.0f} %  {self._done_files}/{self._files} files, {sizes}"

    def run(self, work: Any) -> "Outcome":
        try:
            outcome: Outcome = work()
            return outcome
        finally:
            if self._out.is_tty:
                self._out.control("\r\x1b[K")
