"""Docker and Podman on this machine: a task is a container, and its spool a folder that both sides
see.
"""
