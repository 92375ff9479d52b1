"""The shim: starts the processes of a task, waits for them, and writes down how they ended. It
never talks to a network.
"""
