"""Which engine a cluster means. A new engine is one line here and one table in
`settings/clusters.py`.

Called by `server/control/loop.py`, with the definition that came with the job.
"""

from collections.abc import Callable

from headway.engines.docker.engine import ContainerEngine
from headway.engines.local.engine import LocalEngine
from headway.engines.protocol import Engine
from headway.engines.slurm.engine import SlurmEngine
from headway.home.paths import Paths
from headway.model.errors import UsageError
from headway.model.json_types import JsonMapping
from headway.settings.clusters import LOCAL, resolve

Get = Callable[[str], object]  # the value of a setting, by name
Make = Callable[[str, Paths, Get, JsonMapping], Engine]


def _local(cluster: str, paths: Paths, get: Get, definition: JsonMapping) -> Engine:
    return LocalEngine(cluster, paths, get)


ENGINES: dict[str, Make] = {
    LOCAL: _local,
    "docker": ContainerEngine,
    "podman": ContainerEngine,
    "slurm": SlurmEngine,
}


def engine_for(
    cluster: str, paths: Paths, get: Get, definition: JsonMapping | None = None
) -> Engine:
    """The engine of a cluster. UsageError for a name without a definition, but for the one that is
    always there.
    """
    found = definition or resolve(cluster, {})
    make = ENGINES.get(found.get("engine", LOCAL))
    if make is None:
        raise UsageError(
            f"cluster {cluster}: this version of Headway has no engine {found['engine']!r}"
        )
    return make(cluster, paths, get, found)
