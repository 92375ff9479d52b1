"""The local engine: tasks as processes of this machine, each under a shim that outlives the server."""
