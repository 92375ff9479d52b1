"""The store: the only owner of `headway.db` and of the plain files below `logs/`.

Holds the catalog (jobs, attempts, tasks, events, tokens), metrics as columns, output at its
offsets, and nothing that decides: what a state should be is the server's business. May call
`settings`, `wire` and `model`; called by `server`. `database.Store` is the door; the other modules
are plain functions that take a connection it hands out.
"""
