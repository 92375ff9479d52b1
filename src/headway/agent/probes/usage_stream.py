"""The stream `usage-<pid>-<rand>`: what the sampler found, one fact per sample. Called by the
shipper.

It goes on in a new stream when it has grown, so that what the server has can be removed. Not
synced: a power cut may cost the last seconds of usage, and nothing else.
"""

from __future__ import annotations

import os
from json import JSONEncoder

from headway.model.limits import FRAME_BYTES_MAX, SEGMENT_BYTES_MAX
from headway.model.record import FACT
from headway.spool.files import OS_FILES, Files
from headway.spool.stream_names import new_rand, usage_name
from headway.spool.writer import StreamWriter
from headway.wire.frame import encode
from headway.wire.identity import process_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.model.json_types import JsonObject


# in C: a sample has hundreds of numbers
_ENCODER = JSONEncoder(allow_nan=False, separators=(",", ":"))


class Words:
    """Facts as JSON. A line of a process that has not moved is the object of the sample before
    (`process_stat.py`): so are its words.
    """

    def __init__(self) -> None:
        # by identity, of objects that are held here
        self._known: dict[int, tuple[object, str]] = {}

    def of(self, fact: "JsonObject") -> bytes:
        """Raises ValueError for a number that JSON does not have."""
        lines = fact.get("processes")
        if not lines or fact.get("level"):
            return _ENCODER.encode(fact).encode()
        known = self._known
        told = [known.get(id(line)) or (line, _ENCODER.encode(line)) for line in lines]
        self._known = dict(zip(map(id, lines), told))
        rest = _ENCODER.encode({name: value for name, value in fact.items() if name != "processes"})
        return f'{rest[:-1]},"processes":[{",".join([words for _, words in told])}]}}'.encode()


class UsageStream:
    def __init__(
        self, task_dir: str, files: Files = OS_FILES, bytes_max: int = SEGMENT_BYTES_MAX
    ) -> None:
        self._task_dir, self._files, self._bytes_max = task_dir, files, bytes_max
        self._stream: StreamWriter | None = None
        self._words = Words()

    @property
    def name(self) -> str | None:
        """The stream that is written now; others of this process are complete."""
        return None if self._stream is None else self._stream.name

    def write(self, fact: "JsonObject") -> bool:
        """Append; `fact` has its `time_ns`. A full disk costs this sample; the next one tries a new
        stream (F6).
        """
        try:
            frame = encode(FACT, self._words.of(fact))
        except ValueError:  # a number that JSON does not have
            return False
        if len(frame) > FRAME_BYTES_MAX:
            return False  # nobody could read it
        try:
            self._open().append(frame)
        except OSError:
            self.close()
            return False
        size = self._stream.size() if self._stream is not None else None
        if size is None or size >= self._bytes_max:
            self.close()
        return True

    def _open(self) -> StreamWriter:
        if self._stream is None:
            opening = {
                "kind": "usage",
                "rank": None,
                "pid": os.getpid(),
                "start": process_start(),
                "segment": None,
            }
            name = usage_name(os.getpid(), new_rand())
            self._stream = StreamWriter(self._task_dir, name, opening, self._files)
        return self._stream

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
