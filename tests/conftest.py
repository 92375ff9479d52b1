"""Fixtures for every test: an environment without a person's settings, a home of its own, and
checks for what is left.

`home` is a new HEADWAY_HOME under a short path (a socket's path may have 107 bytes). At the end its
server is stopped, and a process of that home that is still there fails the test. `strace` skips, or
fails when CI=true.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests import container, needs, processes
from tests.laptop import laptop as laptop  # a fixture
from tests.slurmed import slurm as slurm  # a fixture
from tests.waiting import wait_until

CAPABILITY_MAX = 99
RANK_VARIABLES = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK SLURM_PROCID OMPI_COMM_WORLD_RANK".split()
THREADS_END_S = 30.0
SETTLE_S = 30.0  # agents of ended jobs get this long to hand over what they hold

# Two busy cores are no place for deadlines in milliseconds.
hypothesis.settings.register_profile("headway", deadline=None, print_blob=True)
hypothesis.settings.load_profile("headway")


# -- pytest -m "cap(16)"


def pytest_configure(config: pytest.Config) -> None:
    # a shell that starts us in the background, or nohup, ignores signals, and all that a test
    # starts would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    for number in range(CAPABILITY_MAX + 1):
        config.addinivalue_line("markers", f"cap_{number}: capability {number}")
    config.option.markexpr = re.sub(r"\bcap\((\d+)\)", r"cap_\1", config.option.markexpr)


def pytest_itemcollected(item: pytest.Item) -> None:
    for mark in item.iter_markers("cap"):
        for number in mark.args:
            item.add_marker(f"cap_{number}")


_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def pytest_make_parametrize_id(val: object) -> str | None:
    """A drawn UUID must not be part of a test's name: every worker draws its own, and the names
    must agree.
    """
    return _UUID.sub("uuid", val) if isinstance(val, str) and _UUID.search(val) else None


# -- the environment


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees, or writes into, the home and settings of the person who runs it."""
    for name in list(os.environ):
        if name.startswith("HEADWAY_") or name in RANK_VARIABLES:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HEADWAY_HOME", str(tmp_path / "default-home"))
    monkeypatch.setenv("HEADWAY_CHECK_ANSWERS", "1")  # `server/contract.py` is what is answered
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def home(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A new, empty HEADWAY_HOME whose server and agents are gone at the end."""
    base = Path(tempfile.mkdtemp(prefix="hw", dir="/tmp"))
    folder, runtime = base / "home", base / "run"
    folder.mkdir(mode=0o700)
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("HEADWAY_HOME", str(folder))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    yield folder
    left = _clear(folder)
    shutil.rmtree(base, ignore_errors=True)
    if left and not getattr(request.node, "has_failed", False):
        pytest.fail(f"processes were left in the home at the end: {left}", pytrace=False)


def _clear(folder: Path) -> dict[int, str]:
    """End every process of the home, the server last; return those that should have been gone by
    then.
    """

    def others() -> dict[int, str]:
        # each time: one that has only just begun to listen writes it down a little later
        server = _server_pid(folder)
        return {
            pid: words
            for pid, words in found().items()
            if pid != server and not processes.is_launcher(pid)
        }

    def found() -> dict[int, str]:
        return processes.of_home(folder)

    try:
        wait_until(lambda: not others(), SETTLE_S)
        left: dict[int, str] = {}
    except AssertionError:
        left = others()
    server = _server_pid(folder)
    processes.end([*left, *([server] if server else [])])
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not found(), SETTLE_S)  # the warm launcher goes with the server
    late = found()
    processes.end(list(late))
    return left | late


def _server_pid(folder: Path) -> int | None:
    try:
        pid = int(json.loads((folder / "server.json").read_text())["pid"])
    except (OSError, ValueError, KeyError):
        return None
    return pid if pid in processes.of_home(folder) else None


@pytest.fixture
def strace() -> str:
    return needs.strace()


# -- leaks


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and report.failed:
        item.has_failed = True  # type: ignore[attr-defined]
    return report


@pytest.fixture(autouse=True)
def _no_thread_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    if getattr(request.node, "has_failed", False):
        return

    def left() -> list[str]:
        return [
            thread.name
            for thread in threading.enumerate()
            if thread not in before and not thread.daemon
        ]

    try:
        # a pool that was told to end may still be at it
        wait_until(lambda: not left(), THREADS_END_S)
    except AssertionError:
        pytest.fail(f"threads were left at the end: {left()}", pytrace=False)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Processes of homes below pytest's own temporary folder: ended, told, and counted as a
    failure.
    """
    base = getattr(session.config, "_tmp_path_factory", None)
    left = processes.of_home(base.getbasetemp()) if base is not None else {}
    if left:
        processes.end(list(left))
        print(f"\nprocesses were left at the end of the session: {left}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


# -- container engines


@pytest.fixture(scope="session")
def docker() -> Iterator[list[str]]:
    """The words of a docker program with a daemon of our own."""
    with container.docker() as program:
        yield program


@pytest.fixture(scope="session")
def podman() -> Iterator[list[str]]:
    with container.podman() as program:
        yield program
