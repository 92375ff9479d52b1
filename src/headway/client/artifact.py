"""Files and folders of a job: `hw.artifact("model.pt")`. For training, which goes on while the agent carries the bytes.

A file becomes a stream of the spool, `blob-<rank>-<pid>-<rand>.<n>`: a copy on file systems that share blocks, a copy
of small files, a hard link of large ones, so the call takes milliseconds whatever the size. A linked file must not be
written in place before the agent has read it. Only on another file system than the spool's a large file is copied here.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from headway.client.interrupt import raise_if_signal
from headway.client.metric_values import clean_text
from headway.model.limits import (
    ARTIFACT_COPY_BYTES_MAX,
    ARTIFACT_FACT_FILES,
    ARTIFACT_FILES_MAX,
    ARTIFACT_NAME_CHARS_MAX,
    FRAME_BYTES_MAX,
)
from headway.spool.stream_names import blob_name, new_rand

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from headway.client.run import Run
    from headway.model.json_types import JsonObject

_FICLONE = 0x40049409  # Linux: share the blocks of another file
_known: "dict[tuple[int, int, int, int], str]" = {}  # (device, inode, size, mtime) -> stream that has it
_rand = ""
_count = 0
_owner = 0  # the process that drew _rand: a forked child draws its own


def artifact(
    path: "str | os.PathLike[str]",
    name: "str | None" = None,
    type: str = "file",
    metadata: "JsonObject | None" = None,
    aliases: "Iterable[str]" = (),
    step: "int | None" = None,
) -> None:
    """Keep a file or a folder with this job: `hw.artifact("checkpoints/last.pt", name="model", type="model")`.

    The same content is kept once, however often it is put. Each change under one name is a version: `model:v0`,
    `model:v1`, …, `model:latest`, and `aliases` of your own. It never raises.
    """
    from headway.client.api import current_run

    run = current_run()
    try:
        top = os.path.abspath(os.fspath(path))
        entries = _walk(top)
        put(
            entries,
            name or os.path.basename(top) or "files",
            type,
            metadata or {},
            list(aliases),
            step,
        )
    except Exception as error:  # P1: no call of ours raises into training
        raise_if_signal(error)
        run.note(f"artifact {path}", f"artifact({str(path)!r}) is not kept: {_reason(error)}")


def _walk(top: str) -> "list[tuple[str, str]]":
    if not os.path.isdir(top):
        return [(os.path.basename(top), top)]
    found = []
    for folder, folders, files in os.walk(top):
        folders.sort()
        found += [
            (os.path.relpath(os.path.join(folder, file), top), os.path.join(folder, file))
            for file in sorted(files)
        ]
        if len(found) > ARTIFACT_FILES_MAX:
            raise ValueError(f"it has more than {ARTIFACT_FILES_MAX} files")
    return found


def put(
    entries: "Sequence[tuple[str, str]]",
    name: str,
    type: str = "file",
    metadata: "JsonObject | None" = None,
    aliases: "Sequence[str]" = (),
    step: "int | None" = None,
) -> None:
    """Files by their names inside the artifact. Never raises."""
    from headway.client.api import current_run

    run = current_run()
    if run.is_off:
        return
    try:
        with run.lock:
            run.start()
            files = [
                found
                for inside, path in entries[:ARTIFACT_FILES_MAX]
                if (found := _take(run, inside, path))
            ]
            _tell(run, files, name, type, metadata, aliases, step)
    except Exception as error:  # P1: as above
        raise_if_signal(error)
        run.note(f"artifact {name}", f"artifact {name!r} is not kept: {_reason(error)}")


def _tell(
    run: "Run",
    files: "list[JsonObject]",
    name: str,
    type: str,
    metadata: "JsonObject | None",
    aliases: "Sequence[str]",
    step: "int | None",
) -> None:
    """The list of files in as many facts as it needs: a frame has a limit."""
    from headway.client.config_plain import plain

    key = f"{os.getpid()}-{time.time_ns():x}"
    parts = [
        files[at : at + ARTIFACT_FACT_FILES] for at in range(0, len(files), ARTIFACT_FACT_FILES)
    ] or [[]]
    meta = plain(metadata or {}, run.masker())[0]
    for index, part in enumerate(parts):
        fact: JsonObject = {"key": key, "index": index, "parts": len(parts), "files": part}
        if index == len(parts) - 1:
            fact |= {
                "name": artifact_name(name), "artifact_type": clean_text(str(type))[:64],
                "meta": meta if len(str(meta)) < FRAME_BYTES_MAX // 4 else {},
                "aliases": [clean_text(str(word))[:64] for word in aliases[:16]],
                "step": step if isinstance(step, int) else None,
            }  # fmt: skip
        run.fact("artifact", **fact)


def artifact_name(name: str) -> str:
    """Letters, digits and `._-`: a name stands in commands and addresses, where `:` parts it from the version."""
    text = "".join(
        char if char.isalnum() or char in "._-" else "-" for char in clean_text(str(name))
    )
    return text[:ARTIFACT_NAME_CHARS_MAX].strip("-") or "files"


def _take(run: "Run", inside: str, path: str) -> "JsonObject | None":
    """One file into the spool; None for what is no plain file."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        return None
    entry = {
        "path": clean_text(inside),
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "mode": status.st_mode & 0o777,
    }
    if status.st_size == 0:
        return entry
    known = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    stream = _known.get(known)
    if stream is None:
        assert run.place is not None
        stream = _new_name(run.place.rank)
        _bring(path, os.path.join(run.place.task_dir, stream), status.st_size)
        _known[known] = stream
    return {**entry, "stream": stream}


def _new_name(rank: int) -> str:
    global _rand, _count, _owner
    if _owner != os.getpid():
        _rand, _count, _owner = new_rand(), 0, os.getpid()
        _known.clear()
    _count += 1
    return blob_name(rank, os.getpid(), _rand, _count - 1)


def _bring(path: str, target: str, size: int) -> None:
    """The file appears in the spool whole, under its name."""
    draft = f"{target}.tmp"
    if _clone(path, draft):
        os.rename(draft, target)
        return
    if size > ARTIFACT_COPY_BYTES_MAX:
        try:
            os.link(path, target)
            return
        except OSError as error:
            if error.errno not in (
                errno.EXDEV,
                errno.EPERM,
                errno.EMLINK,
                errno.EACCES,
                errno.EOPNOTSUPP,
            ):
                raise
    _copy(path, draft)
    os.rename(draft, target)


def _clone(path: str, target: str) -> bool:
    try:
        from fcntl import ioctl

        with open(path, "rb") as source, _create(target) as out:
            ioctl(out.fileno(), _FICLONE, source.fileno())
        return True
    except OSError:
        _remove(target)
        return False


def _copy(path: str, target: str) -> None:
    try:
        with open(path, "rb") as source, _create(target) as out:
            while part := source.read(1 << 20):
                out.write(part)
    except BaseException:
        _remove(target)
        raise


def _create(path: str) -> "Any":
    return os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb"
    )


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"
