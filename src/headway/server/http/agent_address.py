"""Where agents on other machines reach this server: opened when the first job goes to a cluster
that has such machines.

Made by `serve.py`, asked by the loop for each start. A home that is a monitor has its address for
agents, too. Else a door of their own is opened, behind which nothing but the token of a task
counts, and that opens its own task's routes only. Its port stays the same from one server to the
next where it can; where it cannot, task files are written anew.
"""

import asyncio
import json
import logging
import socket
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

from headway.home.connect import HOST
from headway.home.paths import Paths
from headway.home.remote_server import Address, parse
from headway.model.errors import HeadwayError
from headway.model.json_types import JsonObject
from headway.model.limits import TRAY_KNOWN_MAX
from headway.server.http.listeners import Network
from headway.settings import monitor_settings
from headway.wire.batch import TaskKey

log = logging.getLogger("headway.server")
AUTO, OFF = "auto", "off"
ADDRESSES_MAX = 4  # an agent may wait some seconds for each
_FAR_AWAY = ("198.51.100.1", 9)  # an address that nobody has; nothing is sent to it


class Opener(Protocol):
    opened: asyncio.Event  # it listens, so another door can be added

    def open_door(self, network: Network, agents: bool = False) -> None: ...


class Reach:
    """`wanted`: the setting `agent_address`. `about` is told what became of it."""

    def __init__(
        self,
        paths: Paths,
        wanted: str,
        network: Network | None,
        listener: Opener,
        about: JsonObject,
    ) -> None:
        self._paths, self._wanted, self._network, self._listener, self._about = (
            paths,
            wanted,
            network,
            listener,
            about,
        )
        self._found: JsonObject | None = None
        self._tried = False
        self._lock = asyncio.Lock()

    async def open(self) -> JsonObject | None:
        """`{addresses, pin, host}`, the same each time; None where this server cannot or shall not
        be reached so.
        """
        async with self._lock:
            if not self._tried:
                self._tried = True
                await self._open()
        return self._found

    async def _open(self) -> None:
        error = None
        if self._wanted != OFF:
            try:
                network = await self._listen()
                addresses = await asyncio.to_thread(_numbers, network.listen)
                self._found = (
                    {"addresses": addresses, "pin": network.pin, "host": self._host()}
                    if addresses
                    else None
                )
                log.info(
                    "agents on other machines reach this server at %s",
                    ", ".join(addresses) or "no address",
                )
            except (HeadwayError, OSError) as failure:
                error = str(failure)
                log.error(
                    "agents on other machines cannot reach this server over the network: %s", error
                )
        found = self._found or {}
        told = {"addresses": found.get("addresses", []), "pin": found.get("pin")}
        self._about["agents"] = {**told, "setting": self._wanted, "error": error}

    def _host(self) -> str:
        """What requests must call us there: a monitor knows its own names only."""
        return (
            HOST if self._network is None else monitor_settings.addresses(self._network.listen)[0]
        )

    async def _listen(self) -> Network:
        if self._network is not None:
            return self._network
        await self._listener.opened.wait()
        network = await asyncio.to_thread(self._bind)
        self._listener.open_door(network, agents=True)
        return network

    def _bind(self) -> Network:
        """At the port of the last time, so that agents need not look for it; at any, where that is
        taken.
        """
        if self._wanted != AUTO:
            return Network.at(self._paths, parse(self._wanted, "agent_address", listening=True))
        try:
            port = int(json.loads(self._paths.agents_json.read_text())["port"])
            network = Network.at(self._paths, Address("", port if 0 < port < 65_536 else 0))
        except (OSError, ValueError, KeyError, TypeError, HeadwayError):
            network = Network.at(self._paths, Address("", 0))
        self._paths.agents_json.write_text(json.dumps({"port": network.listen.address.port}))
        return network


def _numbers(listen: monitor_settings.Listen) -> list[str]:
    """As agents need it: they look up no names. The address that leads out of here comes first."""
    host, port = listen.address.host, listen.address.port
    if host in ("", "0.0.0.0", "::"):  # noqa: S104  (said by the person who listens)
        found = [*_outward(), *monitor_settings.interfaces(bridges=False)]
        found = [one for one in found if host != "0.0.0.0" or ":" not in one]  # noqa: S104
    else:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        found = [str(row[4][0]) for row in rows]
    return [str(Address(one, port)) for one in dict.fromkeys(found)][:ADDRESSES_MAX]


def _outward() -> list[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_FAR_AWAY)
            return [str(probe.getsockname()[0])]
        except OSError:
            return []


SOCKET, NETWORK, FOLDER = "socket", "network", "folder"
_TROUBLE_CHARS_MAX = 400


@dataclass(slots=True)
class Used:
    way: str
    trouble: str
    time_s: float


class Ways:
    """Used in the event loop only."""

    def __init__(self) -> None:
        self._used: OrderedDict[TaskKey, Used] = OrderedDict()

    def note(self, task: TaskKey, way: str, trouble: str | None = None) -> None:
        """An agent came this way. `trouble`: why not a better one, in its words; None: it did not
        say.
        """
        if not way:
            return
        known = self._used.pop(task, None)
        if trouble is None:
            told = known.trouble if known else ""
        else:
            told = trouble[:_TROUBLE_CHARS_MAX]
        self._used[task] = Used(way, told, time.monotonic())
        if len(self._used) > TRAY_KNOWN_MAX:
            self._used.popitem(last=False)

    def of(self, task: TaskKey) -> JsonObject:
        """For the job object: `way` null when its agent has not spoken to this server."""
        used = self._used.get(task)
        return {
            "way": used.way if used else None,
            "way_trouble": (used.trouble or None) if used else None,
        }

    def count(self) -> dict[str, int]:
        """Tasks by the way that they came last."""
        ways = [used.way for used in self._used.values()]
        return {way: ways.count(way) for way in (SOCKET, NETWORK, FOLDER) if way in ways}

    def troubles(self) -> list[str]:
        return sorted({used.trouble for used in self._used.values() if used.trouble})
