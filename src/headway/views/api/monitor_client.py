"""The client to a monitor on another machine: TLS with its pinned certificate, and a token in each
request.

Called by `source` when `--monitor` is given. Kept apart because `ssl` takes longer to import than
most commands to run.
"""

import socket
import time
from pathlib import Path

from headway.home import remote_server
from headway.views.api.http_client import Client


class RemoteClient(Client):
    hint = "is it running there, and its port open? hw monitor status tells on that machine"

    def __init__(self, way: remote_server.Way) -> None:
        super().__init__(Path(str(way.address)))
        self.way = way
        self.head = f"Host: {way.address}\r\nAuthorization: Bearer {way.token}\r\n"

    def _connect(self, deadline: float) -> socket.socket:
        self._socket = remote_server.open_tls(
            self.way.address, self.way.pin, max(deadline - time.monotonic(), 0.01)
        )
        return self._socket


def client_to(home: Path, address: str) -> Client:
    """A client for `--monitor ADDRESS`."""
    way = remote_server.way_to(home, remote_server.parse(address, "--monitor"), "view")
    return Client(Path(way.address.path)) if way.address.path else RemoteClient(way)
