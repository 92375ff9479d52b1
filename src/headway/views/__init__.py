"""What a person sees: the command line and the live console. Read-only, but for the verbs
that say otherwise.

May be in here: how to ask the server (`source`), how to lay out text (`format`, `table`,
`terminal`), and one folder per kind of view. Views reach data only over HTTP, through `source`;
they may call `settings`, `wire` and `model`.
"""
