"""The server that these tests attack."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.harness import Served


@pytest.fixture
def served(home: Path) -> Iterator[Served]:
    server = Served(home).start()
    yield server
    server.stop()
