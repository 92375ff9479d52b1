"""Samples of usage as tracks, and the report that `hw usage --html` writes."""
