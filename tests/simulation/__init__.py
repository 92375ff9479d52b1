"""The seeded simulation: agents, server, store, network, clock and faults in one thread.

`make soak` runs it for an hour, `tests/fault/test_simulation.py` for a minute.
"""
