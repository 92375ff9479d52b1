"""Around training: the shim starts the command and writes down how it ended, the shipper sends what
lies in the spool.

`machine` decides and does nothing; `shim` and `shipper` do and decide nothing. Everything here runs
inside a user's environment: standard library only, small imports. May call spool, settings, wire
and model.
"""
