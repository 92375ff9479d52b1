"""Ports of daemons in tests: what one process got, no other gets, though nobody listens on it yet."""

import socket
import subprocess
import sys

import pytest

from headway.testing import port


def test_a_row_is_not_given_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "LAST", port.FIRST + 61)
    rows = [port.reserve(5) for _ in range(3)]
    taken = [number for first in rows for number in range(first, first + 5)]
    assert len(set(taken)) == 15


def test_another_process_does_not_get_what_this_one_holds() -> None:
    first = port.reserve(2)
    words = f"from headway.testing import port; port.FIRST, port.LAST = {first}, {first + 3}; port.reserve(2)"
    done = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, text=True, check=False
    )
    assert "no 2 free ports in a row" in done.stderr


def test_a_port_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        used = server.getsockname()[1]
        monkeypatch.setattr(port, "FIRST", used)
        monkeypatch.setattr(port, "LAST", used + 2)
        with pytest.raises(OSError, match="no 1 free ports"):
            [port.reserve() for _ in range(2)]
