"""Fakes that we ship, for our tests and those of plug-ins: file systems that fail and lose power,
clocks, a simulation.

Nothing that runs in production may import this. May call every other part.
"""
