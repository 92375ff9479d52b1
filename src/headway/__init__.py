"""Headway: run, watch, compare and explain machine-learning jobs."""

__version__ = "0.1.0"
