"""Files of another tracker, as they were sent to us: what is in such a folder may be anything.

A FIFO would be waited for, a device read for ever, and a link could bring a file of this person that
the sender has never seen into a run that others look at. So only plain files are read, and links
lead no further than the folder that is imported. Called by all readers.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from headway.model.undo import UndoOnFailure

FILE_BYTES_MAX = 4 << 30  # one file is read whole by some readers


def open_plain(path: Path, top: Path) -> BinaryIO:
    """For reading. OSError for what is no plain file, or lies outside `top`."""
    if not is_inside(path, top):
        raise OSError(errno.EPERM, "it is a link that leads out of the folder; not read", str(path))
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    # whatever it was, the descriptor must not leak
    with UndoOnFailure(os.close, fd):
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no plain file; not read", str(path))
        if found.st_size > FILE_BYTES_MAX:
            raise OSError(errno.EFBIG, f"it has {found.st_size:,} bytes; not read", str(path))
        return os.fdopen(fd, "rb")


def read_plain(path: Path, top: Path) -> bytes:
    with open_plain(path, top) as file:
        return file.read(FILE_BYTES_MAX)


def read_text(path: Path, top: Path, bytes_max: int = 1 << 20) -> str:
    with open_plain(path, top) as file:
        return file.read(bytes_max).decode("utf-8", "replace")


def is_inside(path: Path, top: Path) -> bool:
    """Whether it lies below `top`, links followed. `top` itself may be a link: a person named it."""
    real, above = os.path.realpath(path), os.path.realpath(top)
    return real == above or real.startswith(above.rstrip("/") + "/")
