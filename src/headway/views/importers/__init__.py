"""Reading what other trackers kept: one file per tracker, and `upload`, which brings it to the server.

Sources are data of somebody else: whatever is in them, a reader says what it skipped and goes on.
Nothing here loads pickles or runs anything of a source.
"""
