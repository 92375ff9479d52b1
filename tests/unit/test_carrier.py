"""The parts of the carrier: command lines of mount tools, tries to send, causes, and what a cache
keeps.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.carrier import folder_paths, mount
from headway.carrier.carrier_state import State, Stopped, cause_of
from headway.carrier.cleanup import Freed, collect
from headway.carrier.main import Carrier
from headway.carrier.send import Sender, open_for_writing
from headway.carrier.shared_links import Link
from headway.model import folder_names as names
from headway.model.errors import NotFoundError, UnreachableError, UsageError
from headway.model.limits import FOLDER_CACHE_S, FOLDER_TRIES
from headway.storage.location import parse
from headway.storage.open_store import CredentialsError
from tests import needs
from tests.driver import alive
from tests.waiting import wait_until

pytestmark = pytest.mark.cap(48)
S3 = {
    "kind": "s3",
    "endpoint": "http://lab:9000",
    "key_id": "my-id",
    "secret": "my-secret",
    "token": "my-token",
}
KEY = {"kind": "azure", "account": "vig", "key": "my-key"}
# a tool is meant to outlive its handle
OUTLIVES = pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")
SAS = {"kind": "azure", "account": "vig", "sas": "?sr=c&sig=my-sig"}


@pytest.mark.parametrize(
    ("tool", "source", "account", "argv", "env"),
    [
        (
            "rclone", "s3://b/x/y", S3, "rclone mount headway:b/x/y /p --cache-dir /c --read-only --extra 1",
            {
                "RCLONE_CONFIG_HEADWAY_TYPE": "s3", "RCLONE_CONFIG_HEADWAY_ACCESS_KEY_ID": "my-id",
                "RCLONE_CONFIG_HEADWAY_SECRET_ACCESS_KEY": "my-secret",
                "RCLONE_CONFIG_HEADWAY_ENDPOINT": "http://lab:9000", "RCLONE_CONFIG_HEADWAY_SESSION_TOKEN": "my-token",
            },
        ),
        (
            "rclone", "az://c/x", SAS, "rclone mount headway:c/x /p --cache-dir /c --read-only --extra 1",
            {"RCLONE_CONFIG_HEADWAY_SAS_URL": "https://vig.blob.core.windows.net/c?sr=c&sig=my-sig"},
        ),
        (
            "s3fs", "s3://b/x/", S3,
            "s3fs b:/x /p -f -o tmpdir=/c -o url=http://lab:9000 -o use_path_request_style -o ro --extra 1",
            {"AWSACCESSKEYID": "my-id", "AWSSECRETACCESSKEY": "my-secret", "AWSSESSIONTOKEN": "my-token"},
        ),
        (
            "blobfuse2", "az://c/x", KEY,
            "blobfuse2 mount /p --container-name=c --tmp-path=/c --foreground --subdirectory=x --read-only --extra 1",
            {"AZURE_STORAGE_ACCOUNT": "vig", "AZURE_STORAGE_ACCESS_KEY": "my-key", "AZURE_STORAGE_AUTH_TYPE": "key"},
        ),
    ],
)  # fmt: skip
def test_a_mount_tool_gets_keys_by_its_environment_alone(
    tool: str, source: str, account: dict[str, str], argv: str, env: dict[str, str]
) -> None:
    folder = {"name": "data", "mount": tool, "mode": "ro", "options": ["--extra", "1"]}
    found = mount.words(folder, parse(source), account, "/p", "/c")
    assert " ".join(found.argv) == argv and "my-" not in argv
    assert env.items() <= found.env.items()


def test_a_mount_tool_that_is_not_installed_is_refused_in_words() -> None:
    with pytest.raises(UsageError, match="s3fs, which is not installed here"):
        mount.check({"name": "data", "mount": "s3fs"}, parse("s3://b/x"), "/nowhere")


def test_a_mount_tool_ends_with_the_wait_for_it(tmp_path: Path) -> None:
    """One that mounted after its job was stopped would stay for good."""
    pid = tmp_path / "pid"

    class StoppedThen(State):
        def check_stop(self) -> None:
            if pid.exists() and pid.read_text().strip():
                raise Stopped

    words = mount.Words(["sh", "-c", f"echo $$ > {pid}; exec sleep 600"], {})
    with (tmp_path / "log").open("w") as log, pytest.raises(Stopped):
        mount.mount(words, str(tmp_path / "point"), log.fileno(), StoppedThen(str(tmp_path)))
    assert not alive(int(pid.read_text()))


@pytest.fixture
def point(tmp_path: Path) -> Iterator[str]:
    """Where `mounted` mounts."""
    needs.tool("rclone", "rclone fuse3")
    needs.allowed("mounting with FUSE is", "test", "-w", "/dev/fuse")
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.txt").write_text("data")
    (tmp_path / "task.json").write_text("{}")
    yield str(tmp_path / "point")
    mount.unmount(str(tmp_path / "point"))


def mounted(tmp_path: Path, point: str) -> int:
    """The process of the tool that is mounted now."""
    words = mount.Words(
        ["rclone", "mount", "--config", "/notfound", str(tmp_path / "source"), point]
    )
    with (tmp_path / "log").open("a") as log:
        mount.mount(words, point, log.fileno(), State(str(tmp_path)))
    return int(json.loads(Path(mount._tool_file(point)).read_text())["pid"])


@OUTLIVES
def test_what_a_killed_mount_tool_has_left_makes_room_though_others_stand_in_it(
    tmp_path: Path, point: str
) -> None:
    first = mounted(tmp_path, point)
    assert mounted(tmp_path, point) == first
    with subprocess.Popen(["sleep", "600"], cwd=point) as other:
        try:
            os.kill(first, signal.SIGKILL)
            wait_until(lambda: not alive(first), what="the end of the tool")
            assert mounted(tmp_path, point) != first
            assert Path(point, "a.txt").read_text() == "data"
        finally:
            other.kill()


@OUTLIVES
def test_what_a_killed_mount_tool_has_left_is_unmounted_though_others_stand_in_it(
    tmp_path: Path, point: str
) -> None:
    tool = mounted(tmp_path, point)
    with subprocess.Popen(["sleep", "600"], cwd=point) as other:
        try:
            os.kill(tool, signal.SIGKILL)
            wait_until(lambda: not alive(tool), what="the end of the tool")
            assert (
                mount.unmount(point) is None
                and not mount.is_mounted(point)
                and not os.path.exists(point)
            )
        finally:
            other.kill()


@OUTLIVES
def test_a_mount_tool_that_hangs_is_not_taken_from_those_that_use_it(
    tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = mounted(tmp_path, point)
    os.kill(tool, signal.SIGSTOP)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(mount, "ANSWER_S", 0.1)
            assert mounted(tmp_path, point) == tool
    finally:
        os.kill(tool, signal.SIGCONT)
    assert Path(point, "a.txt").read_text() == "data"


def test_what_rclone_has_not_sent_is_known_from_its_cache(tmp_path: Path) -> None:
    notes = tmp_path / "vfsMeta" / "headway" / "b"
    notes.mkdir(parents=True)
    (notes / "sent").write_text('{"Dirty": false}')
    (notes / "model.pt").write_text('{"Dirty": true}')
    assert mount.unsent(str(tmp_path)) == ["model.pt"]


def user(tmp_path: Path, name: str, job: str = "train-1") -> Link:
    """A task in the working folder `work` that needs work/data."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "task.json").write_text("{}")
    (tmp_path / "work").mkdir(exist_ok=True)
    return Link(str(tmp_path / "base"), str(tmp_path / "work" / "data"), str(tmp_path / name), job)


def test_a_link_to_a_mount_stays_until_the_last_task_is_gone(tmp_path: Path) -> None:
    first, second = user(tmp_path, "a"), user(tmp_path, "b")
    point = tmp_path / "base" / "mounts" / "m" / "data"
    point.mkdir(parents=True)
    for link in (first, second, first):  # a carrier that is started again comes again
        with link.held():
            link.join(str(point), str(point))
            folder_paths.link(link.path, str(point))
    with second.held():
        assert not second.leave(str(point)) and os.path.islink(first.path)
    with first.held():
        assert first.leave(str(point)) and first.is_last
        point.rmdir()
        first.forget(str(point), str(point))
    assert not os.path.lexists(first.path) and not any((tmp_path / "base" / "mounts").iterdir())


def test_a_task_that_is_gone_without_a_word_keeps_no_mount(tmp_path: Path) -> None:
    first, second = user(tmp_path, "a"), user(tmp_path, "b")
    for link in (first, second):
        with link.held():
            link.join("/point", "/point")
    with first.held():
        assert not first.leave("/point")  # its carrier may be dead, its processes are not
        shutil.rmtree(tmp_path / "b")
        assert first.leave("/point") and first.is_last


def test_a_task_of_another_node_keeps_a_mount_only_as_long_as_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = user(tmp_path, "a")
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="another-node"))
    second = user(tmp_path, "b", "train-2")
    with first.held():
        first.join("/point", "/point")
    with second.held():
        with pytest.raises(UsageError, match="leads to what train-1 has mounted there"):
            second.join("/other", "/other")
        shutil.rmtree(tmp_path / "a")  # its carrier was killed, and its spool is drained
        second.join("/other", "/other")
        assert second.leave("/other") and second.is_last


def test_another_mount_does_not_take_the_place_of_one_that_is_in_use(tmp_path: Path) -> None:
    first, second = user(tmp_path, "a", "train-1"), user(tmp_path, "b", "train-2")
    with first.held():
        first.join("/point", "/point")
    with second.held(), pytest.raises(UsageError, match="leads to what train-1 has mounted there"):
        second.join("/other", "/other")


@pytest.mark.parametrize("dirty", ["true", "false"])
def test_what_was_written_after_the_last_look_does_not_go_with_the_cache(
    tmp_path: Path, dirty: str
) -> None:
    """Of two tasks that share a mount, one lost its carrier and wrote on; the other is the last."""
    link, point = user(tmp_path, "a"), tmp_path / "base" / "mounts" / "m" / "data"
    cache = Path(f"{point}-{os.uname().nodename}{folder_paths.CACHE}")
    (cache / "vfsMeta").mkdir(parents=True)
    (cache / "vfsMeta" / "model.pt").write_text(f'{{"Dirty": {dirty}}}')
    point.mkdir()
    with link.held():
        link.join(str(point), str(point))
        told = Carrier.__new__(Carrier)._let_go(str(point), link, str(point), [])
    unsent = dirty == "true"
    assert told == ([f"the mount tool has not sent: model.pt; it is in {cache}"] if unsent else [])
    assert cache.exists() == unsent and not point.exists()


def test_a_lock_whose_file_was_removed_does_not_count(tmp_path: Path) -> None:
    first, second = user(tmp_path, "a"), user(tmp_path, "b")
    seen: list[str] = []

    # while the second one waits, the first leaves, and takes the lock's file with it
    def remove() -> None:
        seen.append("waits")
        if len(seen) == 1:
            first.forget("/point", "/point")
            holder.__exit__(None, None, None)

    holder = first.held()
    holder.__enter__()
    with second.held(remove):
        assert seen and (tmp_path / "base" / "mounts" / "links").is_dir()
        second.join("/point", "/point")


class FakeStorage:
    """Refuses as often as it is told to."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.failures, self.error, self.sent = failures, error, list[str]()
        self.place = parse("s3://b/out")
        self.during: Callable[[str], None] = lambda path: None

    def send(self, name: str, path: str, report: Any) -> int:
        if self.failures:
            self.failures -= 1
            raise self.error
        self.sent.append(name)
        self.during(path)
        return 1


def sender(tmp_path: Path, storage: FakeStorage) -> Sender:
    task = tmp_path / "task"
    task.mkdir(exist_ok=True)
    (task / "task.json").touch()
    folder: Mapping[str, Any] = {"name": "output"}
    found = Sender(
        folder, storage, str(tmp_path / "base"), "u", str(tmp_path / "out"), State(str(task))
    )  # type: ignore[arg-type]
    found.begin()
    return found


def test_sending_is_tried_again_a_limited_number_of_times(tmp_path: Path) -> None:
    storage = FakeStorage(10**6, UnreachableError("it is down"))
    work = sender(tmp_path, storage)
    (tmp_path / "out" / "model.pt").write_text("x")
    pauses: list[float] = []
    left = work.finish(pauses.append)
    assert (
        left.names == ["model.pt"]
        and left.error is storage.error
        and len(pauses) == FOLDER_TRIES - 1
    )
    storage.failures = 1
    assert work.finish(pauses.append).names == [] and storage.sent == ["model.pt"]
    # it is remembered
    assert sender(tmp_path, storage).finish().names == [] and storage.sent == ["model.pt"]


def test_what_would_never_get_through_is_not_tried_again(tmp_path: Path) -> None:
    work = sender(tmp_path, FakeStorage(10**6, NotFoundError("no bucket")))
    (tmp_path / "out" / "a").write_text("x")
    pauses: list[float] = []
    assert work.finish(pauses.append).names == ["a"] and pauses == []


def test_a_file_that_changes_while_it_is_sent_is_sent_again(tmp_path: Path) -> None:
    storage = FakeStorage(0, UnreachableError(""))
    work = sender(tmp_path, storage)
    (tmp_path / "out" / "a").write_text("x")

    def change(path: str) -> None:
        storage.during = lambda path: None
        Path(path).write_text("longer")

    storage.during = change
    assert work.finish().names == [] and storage.sent == ["a", "a"]


def test_a_file_that_was_changed_just_now_waits(tmp_path: Path) -> None:
    storage = FakeStorage(0, UnreachableError(""))
    work = sender(tmp_path, storage)
    for name in ("new", "old"):
        (tmp_path / "out" / name).write_text("x")
    os.utime(tmp_path / "out" / "old", (1, 1))
    work.step()
    assert storage.sent == ["old"]


def test_files_that_are_open_for_writing_are_known(tmp_path: Path) -> None:
    for name in ("read", "written"):
        (tmp_path / name).touch()
    with (tmp_path / "read").open(), (tmp_path / "written").open("a"):
        assert open_for_writing(str(tmp_path)) == {str(tmp_path / "written")}


@pytest.mark.parametrize(
    ("error", "cause", "kind"),
    [
        (UnreachableError("down"), "storage_io", "transient"),
        (NotFoundError("none"), "missing_file", "user"),
        (CredentialsError("no"), "permission_or_credentials", "user"),
        (UsageError("no obstore"), "config_error", "user"),
        (OSError(28, "No space left on device", "/data/x"), "disk_full", "resource"),
        (OSError(5, "Input/output error"), "storage_io", "transient"),
    ],
)
def test_a_failure_has_a_cause_that_the_table_of_retries_knows(
    error: Any, cause: str, kind: str
) -> None:
    found = cause_of(error, "the folder data could not be fetched")
    assert (found["cause"], found["class"]) == (cause, kind) and found["text"].startswith(
        "the folder data"
    )


def test_a_fetch_stops_when_it_is_told_or_when_the_task_is_gone(tmp_path: Path) -> None:
    (tmp_path / "task.json").touch()
    state = State(str(tmp_path))
    state.check_stop()
    (tmp_path / names.STOP).touch()
    with pytest.raises(Stopped):
        state.check_stop()
    (tmp_path / names.STOP).unlink()
    (tmp_path / "task.json").unlink()
    with pytest.raises(Stopped):
        state.check_stop()


def test_a_folder_of_a_person_is_never_written_over(tmp_path: Path) -> None:
    mine = tmp_path / "data"
    mine.mkdir()
    folder = {"name": "data", "source": "s3://b/x", "mount": None}
    folder_paths.check_free(str(tmp_path), folder, str(mine))  # it is empty
    (mine / "work").touch()
    with pytest.raises(UsageError, match="is there already"):
        folder_paths.check_free(str(tmp_path), folder, str(mine))
    with pytest.raises(OSError, match="not empty"):
        folder_paths.link(str(mine), "/somewhere")
    # an earlier job brought it
    folder_paths.write_json(folder_paths.placed_file(str(tmp_path), str(mine)), {"path": str(mine)})
    folder_paths.check_free(str(tmp_path), folder, str(mine))


def over(uuid: str) -> bool:
    return uuid != "open"


def test_gc_removes_what_was_fetched_in_part_and_given_up_but_not_under_a_carrier(
    tmp_path: Path,
) -> None:
    version = tmp_path / "cache" / "p" / "half"
    version.mkdir(parents=True)
    (version / "f").write_text("data")
    assert collect(tmp_path, over, set()) == Freed(0, 0)  # somebody may be at it
    os.utime(version, (0, time.time() - FOLDER_CACHE_S - 1))
    with folder_paths.locked(str(version.parent / ".lock"), lambda: None):
        assert collect(tmp_path, over, set()) == Freed(0, 0)
    assert collect(tmp_path, over, set()) == Freed(1, 4) and not version.exists()


def test_data_that_a_job_asks_for_while_gc_looks_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = tmp_path / "cache" / "p" / "v"
    version.mkdir(parents=True)
    note = tmp_path / "cache" / "p" / "v.json"
    folder_paths.write_json(str(note), {})
    os.utime(note, (0, time.time() - FOLDER_CACHE_S - 1))
    really = folder_paths.locked

    def after_another(path: str, waiting: Any) -> Any:
        os.utime(note)  # as a carrier does, which had the lock before
        return really(path, waiting)

    monkeypatch.setattr(folder_paths, "locked", after_another)
    assert collect(tmp_path, over, set()) == Freed(0, 0) and version.is_dir() and note.exists()


def test_gc_removes_old_data_that_no_open_job_has(tmp_path: Path) -> None:
    versions = []
    for name in ("used", "old", "fresh"):
        version = tmp_path / "cache" / "p" / name
        version.mkdir(parents=True)
        (version / "f").write_text("data")
        (version / "f").chmod(0o400)
        version.chmod(0o500)
        folder_paths.write_json(f"{version}.json", {})
        if name != "fresh":
            os.utime(f"{version}.json", (0, time.time() - FOLDER_CACHE_S - 1))
        versions.append(version)
    folder_paths.write_json(
        folder_paths.job_file(str(tmp_path), "open", "data", "cached"),
        {"version": str(versions[0])},
    )
    folder_paths.write_json(
        folder_paths.job_file(str(tmp_path), "gone", "data", "cached"),
        {"version": str(versions[1])},
    )
    assert collect(tmp_path, over, {"open"}, dry_run=True) == Freed(1, 4) and versions[1].is_dir()
    assert collect(tmp_path, over, {"open"}) == Freed(1, 4)
    assert [version.is_dir() for version in versions] == [True, False, True]
    assert [path.name for path in (tmp_path / "jobs").iterdir()] == ["open"]
    assert collect(tmp_path, over, {"open"}) == Freed(0, 0)
    for version in versions:
        shutil.rmtree(version, ignore_errors=True)
