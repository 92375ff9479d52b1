"""The HTTP layer below the routes: sockets, the guard, logins, requests and replies."""
