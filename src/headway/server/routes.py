"""The table of all routes. A file of `api/` that is not named here is not served."""

from headway.server.api import agent, jobs, server

ROUTES = (*agent.ROUTES, *jobs.ROUTES, *server.ROUTES)
