"""Fakes and simulations that we ship: a clock to be moved by hand, files that fail, a whole system in one thread.

May import every part of Headway; no part imports this. Called by tests, by `make soak`, and by whoever tests a plug-in.
"""
