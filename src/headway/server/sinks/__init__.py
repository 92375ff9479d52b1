"""Ways out of the server to others: a command, a webhook, the desktop. Each is one function that
says how it went.

Called by `server/notify/notifier.py` in threads of its own; none of them raises, and none takes
longer than it is told to.
"""
