"""How the streams of a task are called. Apart from `layout`, so that the client imports no more
than this.
"""

from __future__ import annotations

import os

RAND_CHARS = 6


def output_name(role: str, rank: int) -> str:
    """`stdout-0`, `stderr-3`."""
    return f"{role}-{rank}"


def index_name(output: str) -> str:
    return f"{output}.index"


def facts_name(rank: int, pid: int, rand: str) -> str:
    return f"facts-{rank}-{pid}-{rand}"


def metrics_name(rank: int, pid: int, rand: str, segment: int) -> str:
    return f"metrics-{rank}-{pid}-{rand}.{segment}"


def logs_name(rank: int, pid: int, rand: str, segment: int) -> str:
    return f"logs-{rank}-{pid}-{rand}.{segment}"


def media_name(rank: int, pid: int, rand: str, segment: int) -> str:
    return f"media-{rank}-{pid}-{rand}.{segment}"


def blob_name(rank: int, pid: int, rand: str, number: int) -> str:
    """A file of an artifact, or a link to one."""
    return f"blob-{rank}-{pid}-{rand}.{number}"


def progress_name(rank: int, pid: int, rand: str) -> str:
    """Slots that are overwritten in place: no stream."""
    return f"progress-{rank}-{pid}-{rand}"


def tracks_name(pid: int, rand: str, segment: int) -> str:
    return f"tracks-{pid}-{rand}.{segment}"


def shipper_name(pid: int, rand: str) -> str:
    return f"shipper-{pid}-{rand}"


def usage_name(pid: int, rand: str) -> str:
    return f"usage-{pid}-{rand}"


def new_rand() -> str:
    """Keeps apart two processes that had the same pid, or one that opens a second stream."""
    return os.urandom(RAND_CHARS // 2).hex()
