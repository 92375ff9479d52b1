"""Whether a command is an MPI program, which `-n` starts as so many worlds of one. Called at submit.

A program finds its MPI world through its launcher. Started without one, `MPI_Init` succeeds with a
world of a single rank, so that nothing fails and everything is computed N times.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Final

from headway.model.json_types import JsonMapping

_READ_BYTES_MAX: Final = 4 << 20  # names of libraries stand near the beginning or the end
_ELF: Final = b"\x7fELF"
_LIBRARY: Final = re.compile(rb"\0lib(?:mpi|mpich|mpi_cxx|mpi_mpifh|pmpi)\.so")
_IMPORT: Final = re.compile(rb"^\s*(?:from|import)\s+mpi4py\b", re.MULTILINE)


def warn(spec: JsonMapping, env: Mapping[str, str]) -> list[str]:
    """What to say of a submission: nothing, or one sentence."""
    count = spec.get("processes") or 1
    if count == 1 or spec.get("launcher") == "mpirun" or spec.get("roles"):
        return []
    name = find(spec["command"], spec["cwd"], env)
    if name is None:
        return []
    return [
        f"{name} is an MPI program: -n starts {count} processes that MPI takes for {count} worlds "
        f"of one rank each; to start them as one world: --launcher mpirun"
    ]


def find(command: Sequence[str], cwd: str, env: Mapping[str, str]) -> str | None:
    """The word of the command that needs mpirun; None where there is none, or it starts one
    itself.
    """
    if not command or os.path.basename(command[0]) in ("mpirun", "mpiexec", "srun"):
        return None
    program = command[0]
    if "/" not in program:
        program = shutil.which(program, path=env.get("PATH")) or program
    if _matches(os.path.join(cwd, program), _ELF, _LIBRARY):
        return command[0]
    for word in command:
        if word.endswith(".py"):
            is_mpi = _matches(os.path.join(cwd, word), b"", _IMPORT)
            return word if is_mpi else None
    return None


def _matches(path: str, start: bytes, pattern: re.Pattern[bytes]) -> bool:
    try:
        with open(path, "rb") as file:
            head = file.read(_READ_BYTES_MAX)
            if not head.startswith(start):
                return False
            size = os.fstat(file.fileno()).st_size
            file.seek(max(len(head), size - _READ_BYTES_MAX))
            return bool(pattern.search(head) or pattern.search(file.read(_READ_BYTES_MAX)))
    except OSError:
        return False
