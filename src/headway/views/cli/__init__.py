"""The command line: `main` finds the verb, `options` reads its options, and each verb is a file of
its own.

May be in here: one file per command, with `command(call) -> int`, and what several commands share.
A verb's file is imported only when the verb is typed. May call `views`, `settings`, `wire` and
`model`.
"""
