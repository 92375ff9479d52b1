"""All that crosses a boundary: frames in a spool, batches to the server, text to a terminal.

Standard library only, but for `block` (numpy), which only the server imports. May import `model`.
"""
