"""Failures that are really provoked, each with its cause. `make score` runs all, `make test` a sample."""
