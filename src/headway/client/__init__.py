"""The client: what runs inside a training process. Standard library only, quick to import, and it
never fails training.

`api` has the public names, `run` the one run of a process, `metric` the hot path, `value` and
`plain` turn what a person passes into numbers and plain data, `attach` makes a job of a script that
nobody submitted, `hooks` and `exception` tell of uncaught exceptions, `bootstrap/` is put on the
PYTHONPATH of every job. May call spool, settings, wire and model.
"""
