"""Which processes of a task are ranks of a launcher inside it: torchrun, accelerate, mpirun, or any
program that starts others with RANK and WORLD_SIZE. Called by `process_tree.py`.

A process is a rank when its environment names one of several and its parent's does not name the
same: what a rank starts (workers, helpers) inherits the variables, and belongs to it. The variables
are those that it was started with; one that sets RANK for itself later is not seen here.
"""

from __future__ import annotations

from headway.model.value import Value

ENVIRON_BYTES_MAX = 256 * 1024
LOOKS = 2  # between fork and exec a process still has its parent's environment
_DIGITS_MAX = 6
_NAMES = (
    (b"RANK", b"LOCAL_RANK", b"WORLD_SIZE"),
    (b"OMPI_COMM_WORLD_RANK", b"OMPI_COMM_WORLD_LOCAL_RANK", b"OMPI_COMM_WORLD_SIZE"),
    (b"PMI_RANK", b"MPI_LOCALRANKID", b"PMI_SIZE"),
)


class Launched(Value):
    rank: int
    local_rank: int
    world_size: int


class LaunchedRanks:
    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._left: dict[int, int] = {}  # looks at a process that are still to come

    def add(self, pid: int) -> None:
        self._left[pid] = LOOKS

    def look(self, parent_of: "dict[int, int]") -> "list[tuple[int, Launched]]":
        """Processes that turn out to be ranks; each once."""
        found: list[tuple[int, Launched]] = []
        for pid in list(self._left):
            self._left[pid] -= 1
            own = launched(self._proc, pid)
            if own is not None and pid in parent_of and own != launched(self._proc, parent_of[pid]):
                found.append((pid, own))
                del self._left[pid]
            elif self._left[pid] <= 0 or pid not in parent_of:
                del self._left[pid]
        return found


def launched(proc: str, pid: int) -> "Launched | None":
    """None for a process that is not one of several, and for one that cannot be read."""
    try:
        with open(f"{proc}/{pid}/environ", "rb", buffering=0) as file:
            data = file.read(ENVIRON_BYTES_MAX)
    except OSError:
        return None
    if b"RANK=" not in data:
        return None
    values = dict(row.partition(b"=")[::2] for row in data.split(b"\0"))
    for names in _NAMES:
        rank, local_rank, size = (_number(values.get(name)) for name in names)
        if rank is not None and size is not None and size > 1 and rank < size:
            return Launched(rank, rank if local_rank is None else local_rank, size)
    return None


def _number(text: "bytes | None") -> "int | None":
    if text is None or not text.isdigit() or len(text) > _DIGITS_MAX:
        return None
    return int(text)
