"""What runs tasks: one file per engine (local now), behind the narrow protocol of `protocol.py`.

May import `settings`, `wire` and `model`; no engine knows another, the store or the agent.
Called by `server/loop.py`.
"""
