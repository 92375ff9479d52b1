"""Which rank it was: what launchers say of the process that failed first."""

import re
from dataclasses import dataclass

from headway.diagnose.evidence import Evidence, Stream
from headway.diagnose.rule import Match

_ROOT_BLOCK = re.compile(r"Root Cause \(first observed failure\)")
_BLOCK_FIELD = re.compile(r"^\s*(time|host|rank|exitcode|error_file|traceback)\s*: ?(.*)$")
_SRUN_TASK = re.compile(r"srun: error: (\S+): task (\d+): (?!Terminated)(\w.*)")
_PROCESS_N = re.compile(r"-- Process (\d+) terminated with the following error")
_MPI_RANK = re.compile(
    r"MPI_ABORT was invoked on rank (\d+)|Process name: \[\[\d+,\d+\],(\d+)\]"
    r"|process rank (\d+) with PID|on node \d+ \(rank (\d+) in comm"
)
_JSON_LOCAL = re.compile(r'"local_rank": (\d+)')
_NCCL_DEVICE = re.compile(r"(?:\[[^\]]*\] )?[\w.-]+:\d+:\d+ \[(\d+)\] ")
_SAYS_RANK = re.compile(r"\b[Rr]ank[ :=#]?(\d+)\b")


@dataclass(slots=True)
class RootBlock:
    """torchrun's own summary of the first failure it saw."""

    rank: int | None = None
    host: str | None = None
    exit_code: int | None = None
    number: int = 0


def who_failed(match: Match, evidence: Evidence) -> tuple[int | None, str | None]:
    """The rank and node that failed first: said by the line, by the launcher, or by the name of the log."""
    node = match.node
    if match.rank is not None:
        return match.rank, node
    if match.stream < 0 and evidence.ends:
        return evidence.ends[0].rank, node or evidence.ends[0].node
    streams = list(evidence.streams)
    if match.stream >= 0:
        own = evidence.streams[match.stream]
        if own.rank is not None:
            return own.rank, node
        streams.sort(key=lambda stream: stream is not own)
    for stream in streams:
        block = root_block(stream)
        if block is not None and block.rank is not None:
            return block.rank, node or block.host
        said = _said_rank(match, stream)
        if said is not None:
            return said, node
    ranks = {stream.rank for stream in evidence.streams if stream.rank is not None}
    if len(ranks) == 1:
        return ranks.pop(), node
    device = _NCCL_DEVICE.match(match.line.text)
    return (int(device[1]) if device else None), node


def root_block(stream: Stream) -> RootBlock | None:
    """torchrun's "Root Cause (first observed failure)"; of several nodes' the one that was not told to stop."""
    blocks: list[RootBlock] = []
    current: RootBlock | None = None
    for line in stream.lines:
        if _ROOT_BLOCK.search(line.text):
            current = RootBlock(number=line.number)
            blocks.append(current)
            continue
        if current is None or line.number > current.number + 12:
            continue
        said = _BLOCK_FIELD.match(line.text)
        if said is None:
            continue
        number = re.match(r"-?\d+", said[2])
        if said[1] == "rank" and number:
            current.rank = int(number[0])
        elif said[1] == "exitcode" and number:
            current.exit_code = int(number[0])
        elif said[1] == "host":
            current.host = said[2].strip() or None
    real = [block for block in blocks if block.exit_code != -15]
    return next(iter(real or blocks), None)


def _said_rank(match: Match, stream: Stream) -> int | None:
    own = _SAYS_RANK.search(match.line.text)
    if own:
        return int(own[1])
    for pattern in (_PROCESS_N, _MPI_RANK, _JSON_LOCAL):
        for line in stream.lines:
            found = pattern.search(line.text)
            if found:
                return int(next(group for group in found.groups() if group is not None))
    for line in stream.lines:
        task = _SRUN_TASK.search(line.text)
        if task:
            return int(task[2])
    return None
