"""What was read last time: for each file its size, times, inode and digest, so that an unchanged
one is not read again. Called by `snapshot.py`. A damaged or older index is none at all: then
everything is read once more.

A file whose time lies too near to the moment when it was read may change again without a new time
(the racy-git rule): it is not believed.
"""

import hashlib
import json
import os
import secrets
import struct
from dataclasses import dataclass, field
from typing import Final

_HEAD: Final = "headway-code-index 1"
_RECORD: Final = struct.Struct("<qqqQI32s")  # size, mtime_ns, ctime_ns, inode, mode, digest
RACY_NS: Final = 100_000_000  # coarser than the clock of any local file system
RACY_COARSE_NS: Final = 2_100_000_000  # where times are whole seconds

Known = tuple[int, int, int, int, int, bytes]


@dataclass(slots=True)
class Index:
    files: dict[str, Known] = field(default_factory=dict)
    digest: str = ""  # of the snapshot that it was written with
    rules: str = ""  # what was left out then and what not, as `Tree.rules` says it

    @classmethod
    def load(cls, path: str) -> "Index":
        try:
            with open(path, "rb") as file:
                data = file.read()
            body, check = data[:-32], data[-32:]
            if hashlib.sha256(body).digest() != check:
                return cls()
            line, _, rest = body.partition(b"\n")
            head = json.loads(line)
            if head["format"] != _HEAD:
                return cls()
            records = rest[: head["count"] * _RECORD.size]
            names = rest[len(records) :].decode("utf-8", "surrogateescape").split("\0")
            files = dict(zip(names, _RECORD.iter_unpack(records), strict=False))
            return cls(files, head["digest"], str(head.get("rules") or ""))
        except (OSError, ValueError, KeyError, TypeError):
            return cls()

    def save(self, path: str) -> None:
        # as git lists them: then a look is a walk through both
        self.files = dict(sorted(self.files.items()))
        about = {
            "format": _HEAD,
            "count": len(self.files),
            "digest": self.digest,
            "rules": self.rules,
        }
        head = json.dumps(about).encode() + b"\n"
        records = b"".join(_RECORD.pack(*known) for known in self.files.values())
        body = head + records + "\0".join(self.files).encode("utf-8", "surrogateescape")
        draft = f"{path}.{secrets.token_hex(4)}.tmp"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:  # not synced: it is only a memory of what can be read again
            file.write(body + hashlib.sha256(body).digest())
        os.rename(draft, path)


def is_settled(status: os.stat_result, read_ns: int) -> bool:
    """Whether a change after `read_ns` would surely show in the file's times."""
    newest = max(status.st_mtime_ns, status.st_ctime_ns)
    coarse = status.st_mtime_ns % 1_000_000_000 == 0 and status.st_ctime_ns % 1_000_000_000 == 0
    return newest < read_ns - (RACY_COARSE_NS if coarse else RACY_NS)
