"""Ports that a task may listen on, kept for it from before its start to its end. Called by the
shim.

The kernel chooses a free port; the shim keeps a socket bound to it with SO_REUSEADDR, and never
listens. While that socket lives, the kernel gives the port to nobody who asks for any free one, in
no job, home or user of this machine; but a program that sets SO_REUSEADDR, as servers do (PyTorch's
store among them), may bind it by its number and listen. So two tasks that start at once never share
a port, and nobody can take it between the choice and its use.
"""

from __future__ import annotations

import _socket  # `socket` itself costs a cold agent some milliseconds


class Ports:
    def __init__(self) -> None:
        self._kept: list[_socket.socket] = []

    def take(self, address: str) -> int | None:
        """The number of a port that is now ours; None where there is none to be had."""
        try:
            sock = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        except OSError:
            return None
        try:
            sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
            # On every interface where others shall reach it: a name may stand for another address
            # on their side.
            sock.bind((address if address.startswith("127.") else "0.0.0.0", 0))  # noqa: S104  (it never listens)
        except OSError:
            sock.close()
            return None
        self._kept.append(sock)
        return int(sock.getsockname()[1])

    def close(self) -> None:
        for sock in self._kept:
            sock.close()
        self._kept.clear()


def own_address(name: str, by_number: bool) -> str:
    """This machine's name; its number where that is asked for and can be told to others."""
    if by_number:
        try:
            found = _socket.gethostbyname(name)
        except OSError:
            return name
        if not found.startswith("127."):
            return str(found)
    return name
