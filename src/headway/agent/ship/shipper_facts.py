"""The shipper's own record stream, `shipper-<pid>-<rand>`: provenance, and the task's end when the
shim is gone.

Opened with its first fact. A stream whose write or sync fails is abandoned and the fact goes into a
new one (F6).
"""

from __future__ import annotations

import os

from headway.spool.files import OS_FILES, Files, sync_dir
from headway.spool.stream_names import new_rand, shipper_name
from headway.spool.writer import StreamWriter
from headway.wire.identity import process_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.model.json_types import JsonObject

TRIES = 3


class Notebook:
    def __init__(self, task_dir: str, files: Files = OS_FILES) -> None:
        self._task_dir, self._files = task_dir, files
        self._stream: StreamWriter | None = None
        self._named = False  # its name is durable

    def write(self, fact: "JsonObject", *, sync: bool = True) -> tuple[str, int]:
        """Append and sync. Returns the stream and where in it the fact starts. Raises OSError when
        nothing helps.
        """
        for attempt in range(TRIES):
            try:
                stream = self._open()
                offset = stream.size() or 0
                stream.append_fact(fact)
                if sync:
                    self._sync(stream)
                return stream.name, offset
            except OSError:
                self.close()
                if attempt == TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    def _open(self) -> StreamWriter:
        if self._stream is None:
            opening = {
                "kind": "shipper",
                "rank": None,
                "pid": os.getpid(),
                "start": process_start(),
                "segment": None,
            }
            self._stream = StreamWriter(
                self._task_dir, shipper_name(os.getpid(), new_rand()), opening, self._files
            )
            self._named = False
        return self._stream

    def _sync(self, stream: StreamWriter) -> None:
        if not self._named:
            sync_dir(self._files, self._task_dir)
            self._named = True
        stream.sync()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
