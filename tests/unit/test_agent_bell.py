"""The bell of the shipper (agent/ship/wakeup.py) on a real folder."""

import select
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.agent.ship.wakeup import Bell

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


@pytest.fixture
def bell(tmp_path: Path) -> Iterator[Bell]:
    bell = Bell(str(tmp_path))
    yield bell
    bell.close()


def rings(bell: Bell, timeout_s: float = 5.0) -> bool:
    return bool(select.select([bell], [], [], timeout_s)[0])


def test_it_rings_at_a_write_to_a_file_that_was_there(bell: Bell, tmp_path: Path) -> None:
    with (tmp_path / "stdout-0").open("wb", buffering=0) as file:
        assert bell.arm()
        file.write(b"x")
        assert rings(bell)


def test_it_rings_at_a_new_file(bell: Bell, tmp_path: Path) -> None:
    assert bell.arm()
    (tmp_path / "facts").touch()
    assert rings(bell)


def test_it_rings_once_until_it_is_armed_again(bell: Bell, tmp_path: Path) -> None:
    assert bell.arm()
    (tmp_path / "a").write_bytes(b"1")
    assert rings(bell)
    bell.hear()
    (tmp_path / "a").write_bytes(b"22")
    assert not rings(bell, 0.05)
    assert bell.arm()
    (tmp_path / "a").write_bytes(b"333")
    assert rings(bell)


def test_it_says_so_when_the_folder_is_gone(tmp_path: Path) -> None:
    bell = Bell(str(tmp_path / "nowhere"))
    assert not bell.arm()
    bell.close()
    assert not bell.arm()
