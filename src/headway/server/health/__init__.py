"""How jobs that run are doing: stacks of all ranks, hangs, slowness. It asks agents through control
and reads the store; it changes no state of a job but through control's own verbs.
"""
