"""`server/http/agent_address.py`: where agents of other machines come in, and what is told of it."""

import asyncio
import json
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from headway.engines.slurm.place import Here
from headway.home.launch import agent_argv
from headway.home.paths import Paths
from headway.home.remote_server import Address
from headway.server.http.agent_address import Reach, _numbers
from headway.server.http.listeners import Network
from headway.settings import monitor_settings
from tests import needs


class Listener:
    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.opened.set()
        self.doors: list[tuple[Network, bool]] = []

    def open_door(self, network: Network, agents: bool = False) -> None:
        self.doors.append((network, agents))


@pytest.fixture
def paths(home: Path) -> Paths:
    needs.tool("openssl", "openssl")
    return Paths(home)


def opened(
    paths: Paths, wanted: str = "auto"
) -> tuple[dict[str, Any] | None, dict[str, Any], Listener]:
    """What it gives, what it tells, and where it listens; twice asked, once done."""

    async def work() -> tuple[dict[str, Any] | None, dict[str, Any], Listener]:
        about: dict[str, Any] = {}
        listener = Listener()
        reach = Reach(paths, wanted, None, listener, about)
        found = await reach.open()
        assert await reach.open() == found
        return found, about["agents"], listener

    return asyncio.run(work())


def close(listener: Listener) -> int:
    [(network, agents)] = listener.doors
    assert agents
    network.sock.close()
    return network.listen.address.port


def test_off_opens_nothing(paths: Paths) -> None:
    found, about, listener = opened(paths, "off")
    assert (found, listener.doors) == (None, [])
    assert about == {"addresses": [], "pin": None, "setting": "off", "error": None}


def test_the_port_is_the_same_the_next_time_unless_somebody_has_it(paths: Paths) -> None:
    port = close(opened(paths)[2])
    assert close(opened(paths)[2]) == port
    with socket.create_server(("", port)):
        assert close(opened(paths)[2]) != port
    paths.agents_json.write_text("not json")
    assert close(opened(paths)[2]) > 0


def test_an_address_that_a_person_names_is_used_as_it_is_or_the_error_is_told(paths: Paths) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found, about, listener = opened(paths, f"127.0.0.1:{port}")
        assert found is None
        assert f"cannot listen at 127.0.0.1:{port}" in about["error"]
    found, about, listener = opened(paths, f"127.0.0.1:{port}")
    assert found == {
        "addresses": [f"127.0.0.1:{port}"],
        "pin": monitor_settings.pin(paths),
        "host": "headway",
    }
    assert close(listener) == port


def test_agents_get_numbers_and_none_of_them_leads_back_to_themselves() -> None:
    for text in _numbers(monitor_settings.Listen(Address("", 1))):
        host = text.rpartition(":")[0].strip("[]")
        assert not host.startswith("127.")
        socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)


def test_task_files_of_this_home_get_the_new_address_and_stay_private(
    home: Path, tmp_path: Path
) -> None:
    place = Here("lab", Paths(home), {"folder": str(tmp_path / "shared")}, agent_argv, None)
    spool = Path(place.shelf.spool)
    task = {"version": 1, "token": "a.b", "tray": str(place.tray), "tls": None}
    for name, told in {
        "mine-1": task,
        "theirs-1": {**task, "tray": "/elsewhere"},
        "half-1": None,
    }.items():
        (spool / name).mkdir(parents=True)
        (spool / name / "task.json").write_text(json.dumps(told) if told else "{")
    tls = {"addresses": ["192.0.2.7:1"], "pin": "00"}
    assert place.readdress(tls) == 1
    assert place.readdress(tls) == 0
    told = json.loads((spool / "mine-1" / "task.json").read_text())
    assert told.pop("=check"), "sealed anew"
    assert told == {**task, "tls": tls}
    assert stat.S_IMODE((spool / "mine-1" / "task.json").stat().st_mode) == 0o600
    assert json.loads((spool / "theirs-1" / "task.json").read_text())["tls"] is None
    place.close()
