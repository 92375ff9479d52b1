"""The table of all routes. A file of `api/` that is not named here is not served."""

from headway.server.api import (
    agent,
    arrays,
    clusters,
    follow,
    gc,
    guest,
    jobs,
    logs,
    metrics,
    notify,
    server,
    stacks,
    tokens,
    watch,
    why,
)

ROUTES = (
    *agent.ROUTES,
    *arrays.ROUTES,
    *clusters.ROUTES,
    *follow.ROUTES,
    *gc.ROUTES,
    *guest.ROUTES,
    *jobs.ROUTES,
    *logs.ROUTES,
    *metrics.ROUTES,
    *notify.ROUTES,
    *server.ROUTES,
    *stacks.ROUTES,
    *tokens.ROUTES,
    *watch.ROUTES,
    *why.ROUTES,
)
