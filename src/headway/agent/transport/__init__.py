"""How the agent reaches the server: unix socket, TLS or a shared folder, with failover between
them; and the commands that come back.
"""
