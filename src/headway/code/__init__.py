"""Code snapshots: which files of a working tree belong to one, the content store that keeps them,
and laying them out again. Standard library only: it runs in the command line, in the server and in
the agent.
"""
