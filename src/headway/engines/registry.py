"""Which engine a cluster's name means. A new engine is one line here. Called by `server/loop.py`."""

from collections.abc import Callable
from difflib import get_close_matches

from headway.engines.local import LocalEngine
from headway.engines.protocol import Engine
from headway.model.errors import UsageError
from headway.settings.home import Paths

Get = Callable[[str], object]  # the value of a setting, by name

ENGINES: dict[str, Callable[[str, Paths, Get], Engine]] = {
    "local": LocalEngine,
}
CLUSTERS = {"here": "local"}  # the cluster that is always there


def engine_for(cluster: str, paths: Paths, get: Get) -> Engine:
    """The engine of a cluster; UsageError with the nearest name when there is no such cluster."""
    engine = CLUSTERS.get(cluster)
    if engine is None:
        near = get_close_matches(cluster, CLUSTERS, 1)
        names = ", ".join(sorted(CLUSTERS))
        raise UsageError(
            f"there is no cluster {cluster[:80]!r}", f"did you mean {near[0]!r}?" if near else f"clusters: {names}"
        )
    return ENGINES[engine](cluster, paths, get)
