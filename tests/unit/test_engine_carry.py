"""Carriers beside containers (engines/docker/folder_carrier.py): one for each task, however many
ask, and none stays a zombie.
"""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from headway.engines.docker import folder_carrier
from headway.engines.docker.folder_carrier import Carriers

pytestmark = pytest.mark.cap(48)


class Child:
    """A started carrier."""

    made = 0
    code: int | None = None

    def __init__(self, *_: Any, **__: Any) -> None:
        type(self).made += 1
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self.code


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    Child.made, Child.code = 0, None
    monkeypatch.setattr(folder_carrier.subprocess, "Popen", Child)
    made = tmp_path / "01234567-89ab-cdef-0123-456789abcdef-1-worker-0"
    made.mkdir()
    (made / "task.json").write_text(json.dumps({"folders": [{"name": "data"}]}))
    return made


def test_one_is_started_however_many_ask(folder: Path) -> None:
    carriers = Carriers()
    threads = [threading.Thread(target=carriers.keep, args=(folder,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Child.made == 1


def test_one_that_has_ended_is_forgotten_and_started_again_but_not_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carriers = Carriers()
    carriers.keep(folder)
    Child.code = 1
    carriers.keep(folder)
    assert Child.made == 1
    monkeypatch.setattr(folder_carrier, "START_S", 0.0)
    carriers.keep(folder)
    assert Child.made == 2
    (folder / "task.json").unlink()
    carriers.keep(folder)
    assert not carriers._children
