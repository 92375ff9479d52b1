"""`wire/tray.py`: requests and answers as files. Whoever is killed at any step leaves a whole file
or none.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.model.errors import DamagedError
from headway.spool.files import Files
from headway.testing.filesystems import FailingFiles
from headway.wire import tray

TASK = tray.Task("01234567-89ab-cdef-0123-456789abcdef", 1, "worker-0")
NAME = tray.name_of(TASK, 0xABCD, 7)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    path = str(tmp_path / "tray")
    tray.make(path)
    return path


class Killed(BaseException):
    """The process is gone: nothing that it would have done after this happens."""


class DyingFiles(Files):
    """As the real ones, until operation `nth`: that one and every later one is never done."""

    def __init__(self, nth: int, short: bool = False) -> None:
        self.left, self.short, self.dead = nth, short, False

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            self.dead = True
        if self.dead:
            raise Killed

    def open(self, path: Any, flags: int, mode: int = 0o600) -> int:
        self._step()
        return super().open(path, flags, mode)

    def write(self, fd: int, data: bytes | memoryview) -> int:  # type: ignore[override]  # a static method there
        if self.left == 0 and self.short and not self.dead:
            os.write(fd, memoryview(data)[: len(data) // 2])
        self._step()
        return os.write(fd, data)

    def read(self, fd: int, length: int) -> bytes:
        self._step()
        return super().read(fd, length)

    def close(self, fd: int) -> None:
        if self.dead:
            os.close(fd)  # as the system does for a dead process
            return
        super().close(fd)
        self._step()

    def rename(self, old: Any, new: Any) -> None:
        self._step()
        super().rename(old, new)

    def unlink(self, path: Any) -> None:
        self._step()
        super().unlink(path)


def test_a_request_is_read_as_it_was_sent_and_so_is_its_answer(folder: str) -> None:
    tray.send(folder, NAME, "/agent/ingest", [b"abc", memoryview(b"def"), b""])
    assert tray.waiting(folder) == [NAME]
    assert tray.answer_to(folder, NAME) is None
    assert tray.read(folder, NAME) == tray.Request(NAME, TASK, "/agent/ingest", b"abcdef")
    tray.reply(folder, NAME, 200, b'{"acks":{}}')
    assert tray.waiting(folder) == []
    assert tray.read(folder, NAME) is None
    assert tray.answer_to(folder, NAME) == tray.Answer(200, b'{"acks":{}}')
    tray.forget(folder, NAME)
    assert [name for _, _, names in os.walk(folder) for name in names] == []


def test_files_and_folders_are_for_their_owner_alone(folder: str) -> None:
    old = os.umask(0)
    try:
        tray.send(folder, NAME, "/agent/poll", [b"{}"])
        tray.reply(folder, NAME, 200, b"")
        tray.send(folder, NAME, "/agent/poll", [b"{}"])
    finally:
        os.umask(old)
    for path in (folder, f"{folder}/out", f"{folder}/in"):
        assert os.stat(path).st_mode & 0o777 == 0o700
    for path in (f"{folder}/out/{NAME}", f"{folder}/in/{NAME}"):
        assert os.stat(path).st_mode & 0o777 == 0o600


def test_a_folder_that_others_may_enter_is_refused(folder: str, tmp_path: Path) -> None:
    os.chmod(f"{folder}/in", 0o750)
    with pytest.raises(tray.ForeignError):
        tray.make(folder)
    os.symlink(folder, tmp_path / "link")
    with pytest.raises(tray.ForeignError):
        tray.check(str(tmp_path / "link"))


@pytest.mark.parametrize("nth", range(12))
@pytest.mark.parametrize("short", [False, True])
def test_a_sender_that_is_killed_at_any_step_leaves_a_whole_request_or_none(
    folder: str, nth: int, short: bool
) -> None:
    try:
        tray.send(folder, NAME, "/agent/ingest", [b"x" * 1000], DyingFiles(nth, short))
        finished = True
    except Killed:
        finished = False
    assert tray.waiting(folder) in ([], [NAME])
    assert not finished or tray.waiting(folder) == [NAME]
    for name in tray.waiting(folder):
        found = tray.read(folder, name)
        assert found is not None
        assert found.body == b"x" * 1000
    # the next one is not in the way of what is left
    tray.send(folder, NAME, "/agent/ingest", [b"again"])
    found = tray.read(folder, NAME)
    assert found is not None
    assert found.body == b"again"
    assert tray.leftovers(folder) == []


@pytest.mark.parametrize("nth", range(14))
def test_a_server_that_is_killed_at_any_step_answers_wholly_or_is_asked_again(
    folder: str, nth: int
) -> None:
    tray.send(folder, NAME, "/agent/poll", [b"{}"])
    try:
        tray.reply(folder, NAME, 200, b"y" * 1000, DyingFiles(nth))
    except Killed:
        pass
    answer = tray.answer_to(folder, NAME)
    assert answer is not None or tray.waiting(folder) == [NAME]  # never neither
    assert answer is None or answer == tray.Answer(200, b"y" * 1000)
    for name in tray.waiting(folder):  # the next server
        tray.reply(folder, name, 200, b"y" * 1000)
    assert tray.waiting(folder) == []
    assert tray.answer_to(folder, NAME) == tray.Answer(200, b"y" * 1000)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.ESTALE])
def test_an_operation_that_fails_leaves_nothing_half_behind(folder: str, number: int) -> None:
    for nth in range(20):
        files = FailingFiles(nth, number)
        try:
            tray.send(folder, NAME, "/agent/ingest", [b"abc"], files)
        except OSError:
            assert tray.waiting(folder) == []
        else:
            assert tray.read(folder, NAME) is not None
        tray.forget(folder, NAME)
        if not files.failed:
            break
    else:
        raise AssertionError("the loop never came to an end without a failure")


def test_reading_what_a_file_server_has_forgotten_is_reading_nothing(folder: str) -> None:
    tray.send(folder, NAME, "/agent/ingest", [b"abc"])
    for only in ("open", "fstat", "read"):
        files = FailingFiles(0, errno.ESTALE, only=frozenset({only}))
        assert tray.read(folder, NAME, files) is None
        assert files.failed == 1
    with pytest.raises(OSError, match="Input/output"):
        tray.read(folder, NAME, FailingFiles(0, errno.EIO, only=frozenset({"read"})))


@settings(max_examples=60, deadline=None)
@given(
    body=st.binary(max_size=300),
    cut=st.integers(0, 400),
    flip=st.integers(0, 400),
    bit=st.integers(0, 7),
)
def test_a_part_of_a_file_or_a_changed_one_is_never_taken_for_it(
    tmp_path_factory: pytest.TempPathFactory, body: bytes, cut: int, flip: int, bit: int
) -> None:
    folder = str(tmp_path_factory.mktemp("t") / "tray")
    tray.make(folder)
    tray.send(folder, NAME, "/agent/ingest", [body])
    path = Path(folder, "out", NAME)
    whole = path.read_bytes()
    path.write_bytes(whole[: cut % len(whole)])
    with pytest.raises(DamagedError):
        tray.read(folder, NAME)
    changed = bytearray(whole)
    changed[flip % len(whole)] ^= 1 << bit
    path.write_bytes(changed)
    try:
        found = tray.read(folder, NAME)
    except DamagedError:
        return
    # a changed letter of the route: the server knows no such route, and the body is whole
    assert found is not None
    assert found.body == body


def test_what_is_not_a_file_of_ours_is_refused_unread(folder: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    path = Path(folder, "out", NAME)

    def open_to_others() -> None:
        path.touch()
        path.chmod(0o644)

    def too_large() -> None:
        path.touch(0o600)
        os.truncate(path, tray.FILE_BYTES_MAX + 1)

    def of_another() -> None:
        path.touch(0o600)
        os.chown(path, 12345, -1)

    makers: list[Callable[[], None]] = [
        lambda: path.symlink_to(tmp_path / "secret"),
        lambda: os.mkfifo(path, 0o600),
        path.mkdir,
        open_to_others,
        too_large,
    ]
    if os.geteuid() == 0:
        makers.append(of_another)
    for maker in makers:
        maker()
        with pytest.raises(tray.ForeignError):
            tray.read(folder, NAME)
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", f".{NAME}", f"{NAME}.tmp", NAME.replace("worker", "../x"), NAME.replace("-1-", "-x-"),
        NAME.replace("-1-", "--"), NAME.upper(), NAME[:-1], "x" + NAME, f"{NAME}\n", NAME.replace("worker-0", ""),
        NAME.replace("worker-0", "w" * 65), NAME.replace("-1-", "-1234567890-"), NAME.replace("-1-", "-١-"),
    ],
)  # fmt: skip
def test_a_name_that_is_none_of_ours_is_not_looked_at(folder: str, name: str) -> None:
    assert tray.task_of(name) is None
    if name and "/" not in name and name.strip("."):
        Path(folder, "out", name).touch(0o600)
        assert tray.waiting(folder) == []


def test_drafts_and_answers_that_nobody_took_are_left_over(folder: str) -> None:
    tray.send(folder, NAME, "/agent/poll", [b"{}"])
    tray.reply(folder, NAME, 200, b"")
    with pytest.raises(Killed):
        tray.send(folder, NAME, "/agent/poll", [b"{}"], DyingFiles(4))
    found = tray.leftovers(folder)
    assert sorted(os.path.basename(path) for path in found) == [f".{NAME}", NAME]
    for path in found:
        tray.remove(path)
    assert tray.leftovers(folder) == []
