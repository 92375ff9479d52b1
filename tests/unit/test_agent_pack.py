"""Batches of output (agent/ship/batcher.py): a tail that may be the start of a secret waits only
where nothing follows it.
"""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headway.agent.ship.batcher import Packer
from headway.agent.ship.mask import Mask
from headway.agent.ship.stream_state import Span
from headway.model.record import RAW

SECRET = b"hunter22hunter22"


def packer(path: Path) -> Packer:
    fd = os.open(path, os.O_RDONLY)
    tailed = SimpleNamespace(fd=fd, size=path.stat().st_size)
    tail: Any = SimpleNamespace(streams={"stdout-0": tailed})
    return Packer(tail, lambda: Mask([SECRET]), lambda text: None)


def test_in_the_middle_of_a_backlog_the_next_batch_goes_on_at_once(tmp_path: Path) -> None:
    """It waited for two seconds after each such batch, and a backlog of a gigabyte took minutes."""
    path = tmp_path / "stdout-0"
    path.write_bytes(b"x" * 992 + SECRET + b"y" * 1000)
    made = packer(path)
    # ends in the middle of the secret
    first = made.pack(1, (Span("stdout-0", RAW, 0, 1000, None),), 0.0)
    [piece] = first.pieces
    assert piece.length < 1000 and not first.held
    rest = made.pack(2, (Span("stdout-0", RAW, piece.length, 2008 - piece.length, None),), 0.0)
    sent = b"".join(bytes(part.data) for batch in (first, rest) for part in batch.parts)
    assert len(sent) == 2008 and SECRET not in sent and b"hunter" not in sent


def test_at_the_end_of_what_is_there_it_waits_for_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "stdout-0"
    path.write_bytes(b"x" * 992 + SECRET[:8])
    batch = packer(path).pack(1, (Span("stdout-0", RAW, 0, 1000, None),), 0.0)
    assert [piece.length for piece in batch.pieces] == [992]
    assert [held.stream for held in batch.held] == ["stdout-0"]
