"""Ways out of the server to people: a command, a webhook, the desktop. Each is one function that
sends one notice.
"""
