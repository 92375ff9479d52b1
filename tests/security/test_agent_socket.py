"""The socket that containers have mounted: our own uid opens nothing there, only a token does."""

import os
import socket
import stat
from pathlib import Path

import pytest

from headway.home.paths import agent_socket_path, socket_path
from tests.driver import Hw


def status(path: Path, request: str) -> int:
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(30)
        s.connect(str(path))
        s.sendall(f"{request} HTTP/1.1\r\nHost: headway\r\nConnection: close\r\n\r\n".encode())
        return int(s.recv(4096).split()[1])


@pytest.fixture
def served(home: Path, tmp_path: Path) -> Path:
    assert Hw(home, tmp_path)("server", "start").returncode == 0
    return home


@pytest.mark.parametrize(
    "request_line", ["GET /api/jobs", "GET /api/server", "POST /api/jobs", "POST /api/clusters"]
)
def test_who_only_has_our_uid_is_nobody_there(served: Path, request_line: str) -> None:
    assert status(agent_socket_path(served), request_line) == 401


def test_the_usual_socket_still_knows_its_owner(served: Path) -> None:
    assert status(socket_path(served), "GET /api/jobs") == 200


def test_it_lies_alone_in_a_closed_folder(served: Path) -> None:
    path = agent_socket_path(served)
    assert os.listdir(path.parent) == [path.name]
    assert (
        stat.S_IMODE(path.stat().st_mode) == 0o600
        and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    )
