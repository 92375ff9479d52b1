"""What runs tasks: one file or folder per engine, behind the narrow protocol of `protocol.py`.

May import `code`, `carrier`, `storage`, `settings`, `wire` and `model`; no engine knows another,
the store or the agent. Called by `server/control/loop.py`; of `cluster_folder.py`, also by the
agent's relay on a login node.
"""
