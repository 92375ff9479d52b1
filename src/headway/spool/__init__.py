"""The spool: one folder per task on the node where it runs, append-only files in it.

`files` is the seam to the file system, `layout` names what lies in a task's folder, `writer`
appends frames, `reader` and `cursor` are the shipper's half. Called by client and agent, inside a
user's environment: standard library only, and nothing that is slow to import. May call settings,
wire and model.
"""
