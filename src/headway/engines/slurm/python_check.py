"""Whether the Python of a cluster has what the folders of a job need. Called by the engine before a
job is taken.

It is asked where Slurm's commands run: the nodes have the same one, nearly always. Where it cannot
be asked, the carrier tells it on the node.
"""

from collections.abc import Sequence
from typing import Final

from headway.carrier.folder_paths import needs_library
from headway.engines.slurm.commands import Commands
from headway.model.errors import RefusedError, UnreachableError
from headway.model.job import Folder

_LOOK: Final = "import importlib.util, sys; sys.exit(importlib.util.find_spec('obstore') is None)"


class Library:
    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._there: set[str] = set()  # Pythons that have it; one that has not is asked again

    def check(self, folders: Sequence[Folder], python: str, host: str) -> None:
        wanted = next((folder.name for folder in folders if needs_library(folder)), None)
        if wanted is None or python in self._there:
            return
        try:
            self._commands.run([python, "-c", _LOOK])
        except UnreachableError:
            return
        except RefusedError:
            raise RefusedError(
                f"the folder {wanted} needs the package obstore, which {python} on {host} does not have",
                f"there: {python} -m pip install obstore; or name a Python that has it as `python` of the cluster",
            ) from None
        self._there.add(python)
