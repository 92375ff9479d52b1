"""The relay on a login node, with a shell of this machine in place of ssh: messages, files, code,
lost connections.
"""

import errno
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.code.depot import Depot, content_digest
from headway.code.manifest import FILE, Entry, encode
from headway.engines.slurm import fetch_outputs
from headway.engines.slurm.place_ssh import Far
from headway.engines.ssh import relay_client
from headway.engines.ssh.relay_client import Relay
from headway.home.paths import Paths
from headway.model.errors import DamagedError, HeadwayError, RefusedError, UnreachableError
from headway.model.limits import OUTPUT_ROOM_BYTES
from headway.wire import relay_messages as wire
from tests.driver import alive
from tests.waiting import wait_until

UUID = "01234567-89ab-cdef-0123-456789abcdef"
OTHER = "11234567-89ab-cdef-0123-456789abcdef"
BANNER = "printf 'Welcome to the lab!\\nno newline at the end of this'; "


class Host:
    """What ssh would lead to; `prefix` is what its login shell does first."""

    def __init__(self, prefix: str = BANNER) -> None:
        self.prefix = prefix
        self.count = 0

    def argv(self, host: str) -> list[str]:
        self.count += 1
        return ["sh", "-c", f'{self.prefix} eval "$0"']


class Rig:
    def __init__(self, folder: Path) -> None:
        self.host, self.now_s = Host(), 1000.0
        self.folder = folder / "far"
        self.relay = Relay(
            "lab",
            str(self.folder),
            "home1",
            sys.executable,
            argv=self.host.argv,
            clock_s=lambda: self.now_s,
        )
        self.paths = Paths(folder / "near")
        self.far = Far(self.paths, {"host": "lab"}, self.relay)

    def run(self, *argv: str) -> str:
        return self.far.commands.run(argv)

    def pid(self) -> int:
        return int(self.relay.hello()["pid"])


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.relay.close()


def test_commands_run_there_whatever_the_login_shell_prints(rig: Rig) -> None:
    assert rig.run("printf", "%s", "$HOME 'as it is'\n") == "$HOME 'as it is'\n"
    assert rig.far.commands.run(["cat"], "text on its input") == "text on its input"
    with pytest.raises(RefusedError, match="Slurm refuses it: no such partition"):
        rig.run("sh", "-c", "echo sh: error: no such partition >&2; exit 1")
    with pytest.raises(UnreachableError, match=r"did not answer within 0\.2 s"):
        rig.far.commands.run(["sleep", "60"], timeout_s=0.2)
    with pytest.raises(UnreachableError, match="no-such-program is not on"):
        rig.run("no-such-program")


def test_the_program_lands_once_in_a_private_folder(rig: Rig) -> None:
    first = rig.relay.hello()
    [program] = (rig.folder / "bin").iterdir()
    assert str(program) == first["zip"] and program.stat().st_mode & 0o077 == 0
    before = program.stat().st_mtime_ns
    again = Relay("lab", str(rig.folder), "home2", sys.executable, argv=rig.host.argv)
    assert again.hello()["zip"] == first["zip"] and program.stat().st_mtime_ns == before
    again.close()


def test_a_spoilt_program_is_sent_again(rig: Rig) -> None:
    path = Path(rig.relay.hello()["zip"])
    rig.relay.close()
    path.write_bytes(path.read_bytes()[:-10])
    again = Relay("lab", str(rig.folder), "home1", sys.executable, argv=rig.host.argv)
    assert again.call("run", argv=["echo", "yes"], limit_s=5)[1] == b"yes\n"
    again.close()


def test_a_relay_ends_with_its_input(rig: Rig) -> None:
    pid = rig.pid()
    rig.relay.close()
    wait_until(lambda: not alive(pid), what="the end of the relay")


def test_a_lost_connection_is_made_again_and_until_then_everything_says_so_at_once(
    rig: Rig,
) -> None:
    pid = rig.pid()
    rig.host.prefix = "echo the lab is closed >&2; exit 255;"
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: _trouble(rig), what="the loss")
    tried = rig.host.count
    with pytest.raises(
        UnreachableError, match=r"lab is not reached over ssh: .* \(since \d\d:\d\d:\d\d UTC\)"
    ):
        rig.run("true")
    assert rig.host.count == tried  # it waits a while before it tries again
    rig.now_s += 60
    wait_until(
        lambda: _trouble(rig) and "the lab is closed" in rig.relay.trouble(),
        what="the words of ssh",
    )
    rig.host.prefix = ""
    rig.now_s += 60
    wait_until(lambda: not _trouble(rig), what="the connection")
    assert rig.run("echo", "back") == "back\n" and rig.relay.trouble() == ""


def _trouble(rig: Rig) -> str:
    try:
        rig.run("true")
    except UnreachableError as error:
        return str(error)
    return ""


def test_a_relay_that_answers_nothing_is_given_up_and_replaced(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = rig.pid()
    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(relay_client, "RELAY_SILENT_S", 0.0)
    with pytest.raises(UnreachableError, match=r"did not answer within 0\.2 s"):
        rig.relay.call("run", argv=["true"], limit_s=5, timeout_s=0.2)
    wait_until(lambda: not alive(pid), what="the end of the old one")
    rig.now_s += 60
    wait_until(lambda: not _trouble(rig), what="a new connection")
    assert rig.pid() != pid


def test_a_host_without_a_python_says_which_it_needs(tmp_path: Path) -> None:
    lacking = Relay("lab", str(tmp_path), "home1", "/no/python", argv=Host().argv)
    with pytest.raises(RefusedError, match=r"/no/python on lab is not a Python 3\.9 or newer"):
        lacking.hello()
    lacking.close()


def test_a_folder_that_cannot_be_used_is_not_taken_for_a_host_that_is_away(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    lacking = Relay("lab", str(tmp_path / "file" / "folder"), "home1", argv=Host().argv)
    with pytest.raises(
        UnreachableError, match=r"lab is reached, but the relay could not start there: .*Error: "
    ) as caught:
        lacking.hello()
    assert "`folder:`" in caught.value.hint
    lacking.close()


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("Host key verification failed.", "log in once by hand"),
        ("me@lab: Permission denied (publickey).", "without a question"),
        ("ssh: Could not resolve hostname lab: Name or service not known", "ssh/config"),
    ],
)
def test_what_ssh_refuses_is_told_with_what_to_type(tmp_path: Path, said: str, hint: str) -> None:
    away = Relay("lab", str(tmp_path), "home1", argv=Host(f"echo '{said}' >&2; exit 255;").argv)
    with pytest.raises(UnreachableError, match="lab is not reached over ssh") as caught:
        away.hello()
    assert said in caught.value.message and hint in caught.value.hint
    away.close()


def test_nothing_but_the_named_operations_is_reached(rig: Rig, tmp_path: Path) -> None:
    with pytest.raises(DamagedError):
        rig.relay.call("shelf", method="close", args={})
    with pytest.raises(DamagedError):
        rig.relay.call("shelf", method="__init__", args={})
    with pytest.raises(DamagedError):
        rig.relay.call("shelf", method="remove", args={"names": ["../../near"]})
    with pytest.raises(DamagedError):
        rig.relay.call("put", b"x", draft="../evil", offset=0)
    with pytest.raises(HeadwayError):
        rig.relay.call("eval", code="1")
    assert rig.run("echo", "still there") == "still there\n"
    assert not (tmp_path / "far" / "evil").exists()


# -- files


def test_a_task_folder_is_made_there_and_seen_from_here(rig: Rig) -> None:
    shelf, key = rig.far.shelf, f"{UUID}-1"
    task = {"version": 1, "id": "job-7f3c2", "uuid": UUID, "grace_s": 7}
    shelf.make_all([(f"{key}-worker-0", task, {"MY_TOKEN": "hunter22hunter22"})])
    folder = rig.folder / "spool" / "home1" / f"{key}-worker-0"
    assert (
        folder.stat().st_mode & 0o777 == 0o700 and "hunter22" in (folder / "env.json").read_text()
    )
    (folder / "shim.json").write_text('{"pid": 42}')
    [view] = shelf.look([key], True)[key].values()
    assert view.begun and not view.ended and view.pid == 42 and view.grace_s == 7
    shelf.remember(key, "17")
    assert (
        shelf.id_of(key) == "17" and shelf.ids() == {key: "17"} and shelf.tasks() == [folder.name]
    )
    shelf.remove([folder.name])
    shelf.forget(key)
    assert shelf.tasks() == [] and shelf.ids() == {}


def snapshot(home: Path, files: dict[str, bytes]) -> str:
    depot = Depot(home / "code")
    with depot.adding() as writer:
        for data in files.values():
            writer.add(content_digest(data), data)
    made = depot.put_manifest(
        encode(
            Entry(name, FILE, content_digest(data).hex(), len(data)) for name, data in files.items()
        )
    )
    depot.close()
    return made


class Planned:
    def __init__(self, code: str) -> None:
        self.code = code


def test_only_content_that_is_new_travels(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    call = rig.relay.call

    def counted(do: str, body: bytes = b"", **head: Any) -> Any:
        if do == "put":
            sent.append(len(body))
        return call(do, body, **head)

    monkeypatch.setattr(rig.relay, "call", counted)
    large = os.urandom(3_000_000)
    first = snapshot(rig.paths.home, {"a.py": b"print(1)", "data.bin": large})
    rig.far.carry(Planned(first))  # type: ignore[arg-type]
    assert sum(sent) > len(large) and Depot(rig.folder / "code").has(first)
    sent.clear()
    rig.far.carry(Planned(first))  # type: ignore[arg-type]
    assert sent == []
    second = snapshot(rig.paths.home, {"a.py": b"print(2)", "data.bin": large})
    rig.far.carry(Planned(second))  # type: ignore[arg-type]
    assert 0 < sum(sent) < 1000 and not list((rig.folder / "drafts").iterdir())
    assert Depot(rig.folder / "code").read(content_digest(large).hex()) == large
    for digest in (first, second):
        os.utime(rig.folder / "code" / "manifests" / digest, (0, 0))
    assert rig.far.shelf.has_code(second)  # so it is about to be used
    assert rig.far.shelf.collect([], False) == (1, 0, len(b"print(1)"))


def test_outputs_come_back_once_and_a_name_that_leads_out_is_not_followed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, name = rig.folder / "output" / "job-7f3c2", f"{UUID}-1-worker-0"
    rig.far.shelf.make_all([(name, {"version": 1, "id": "job-7f3c2", "uuid": UUID}, {})])
    (path / "deep").mkdir()
    assert rig.far.shelf.unfinished() == {}  # a task of it is still there
    rig.far.shelf.remove([name])
    (path / "deep" / "model.bin").write_bytes(b"m" * 2_500_000)
    (path / "link").symlink_to("/etc/passwd")
    assert rig.far.shelf.unfinished() == {UUID: "job-7f3c2"}
    assert rig.far.finish(f"{UUID}-1") is False
    here = rig.paths.output / "job-7f3c2"
    wait_until(lambda: not rig.far.shelf.unfinished(), what="the outputs")
    assert (here / "deep" / "model.bin").read_bytes() == b"m" * 2_500_000
    assert sorted(p.name for p in here.iterdir()) == ["deep"]
    wait_until(lambda: rig.far.finish(f"{UUID}-1"), what="its end")
    assert not rig.paths.coming("job-7f3c2").exists()
    monkeypatch.setattr(rig.far.shelf, "outputs", lambda job: [("../../evil", 1, 1)])
    with pytest.raises(DamagedError, match="not the name of an output"):
        rig.far._fetch._fetch("job-7f3c2")


def finished(rig: Rig, job: str, files: dict[str, bytes], uuid: str = UUID) -> Path:
    """A job that is over, with its outputs there; where they belong here."""
    path, name = rig.folder / "output" / job, f"{uuid}-1-worker-0"
    rig.far.shelf.make_all([(name, {"version": 1, "id": job, "uuid": uuid}, {})])
    rig.far.shelf.remove([name])
    for file, data in files.items():
        (path / file).write_bytes(data)
    return rig.paths.output / job


def test_an_output_goes_on_where_it_was_left_and_what_is_here_does_not_come_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(5 << 20)
    here = finished(rig, "job-7f3c2", {"a": b"small", "model": data})
    real, asked = rig.relay.call, []

    def call(do: str, *args: Any, **head: Any) -> Any:
        if do == "get":
            asked.append((head["path"], head["offset"]))
            if asked[-1] == ("model", 3 << 20):
                raise UnreachableError("lab is not reached over ssh: broken")
        return real(do, *args, **head)

    monkeypatch.setattr(rig.relay, "call", call)
    for _ in range(2):
        with pytest.raises(UnreachableError):
            rig.far._fetch._fetch("job-7f3c2")
    assert asked == [("a", 0), *(("model", k << 20) for k in range(4)), ("model", 3 << 20)]
    assert "broken; it goes on by itself" in rig.paths.coming("job-7f3c2").read_text()
    monkeypatch.setattr(rig.relay, "call", real)
    rig.far._fetch._fetch("job-7f3c2")
    assert (here / "model").read_bytes() == data and sorted(os.listdir(here)) == ["a", "model"]
    assert not rig.paths.coming("job-7f3c2").exists()
    (rig.folder / "output" / "job-7f3c2" / "model").write_bytes(b"another")
    rig.far._fetch._fetch("job-7f3c2")
    assert (here / "model").read_bytes() == b"another"


def test_nothing_stays_of_an_output_that_changed_between_two_tries_and_it_is_on_disk_before_it_has_its_name(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = f".{'0' * 24}.part"  # the job's own file, whatever it is called
    here = finished(rig, "job-7f3c2", {own: b"own", "model": b"m" * (2 << 20)})
    real, fsync, replace = rig.relay.call, os.fsync, os.replace
    done: list[str] = []

    def call(do: str, *args: Any, **head: Any) -> Any:
        if do == "get" and head["offset"]:
            raise UnreachableError("lab is not reached over ssh: broken")
        return real(do, *args, **head)

    monkeypatch.setattr(rig.relay, "call", call)
    with pytest.raises(UnreachableError):
        rig.far._fetch._fetch("job-7f3c2")
    assert len(list(here.glob(".*.part"))) == 2
    monkeypatch.setattr(rig.relay, "call", real)
    (rig.folder / "output" / "job-7f3c2" / "model").write_bytes(b"another")
    monkeypatch.setattr(os, "fsync", lambda fd: (done.append("on disk"), fsync(fd)))
    monkeypatch.setattr(
        os, "replace", lambda old, new: (done.append(Path(new).name), replace(old, new))
    )
    rig.far._fetch._fetch("job-7f3c2")
    assert (here / "model").read_bytes() == b"another" and sorted(os.listdir(here)) == sorted(
        [own, "model"]
    )
    assert done[done.index("model") - 1] == "on disk"


def test_outputs_for_which_there_is_no_room_here_stay_there_and_are_named(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = finished(rig, "job-7f3c2", {"a": b"small", "model": b"m" * 5000, "z": b"small"})
    usage = shutil.disk_usage(rig.folder)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: usage._replace(free=OUTPUT_ROOM_BYTES + 100)
    )
    wait_until(lambda: rig.far.finish(f"{UUID}-1"), what="its end")
    assert sorted(os.listdir(here)) == ["a", "z"]
    told = rig.paths.coming("job-7f3c2").read_text()
    assert told.startswith(
        f"model (4.9 KiB) stay in lab:{rig.folder}/output/job-7f3c2: 1.0 GiB are free here"
    )
    assert rig.far.shelf.unfinished() == {}


def test_an_output_that_cannot_come_stays_there_and_the_others_come(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = finished(rig, "job-7f3c2", {"a": b"small", "secret": b"s" * 3000, "z": b"small"})
    rig.far._fetch.expect(UUID, "job-7f3c2")
    (here / "a").mkdir(parents=True)  # a folder in the attempt before
    real = rig.relay.call

    def call(do: str, *args: Any, **head: Any) -> Any:
        if head.get("path") == "secret":
            raise PermissionError(errno.EACCES, "lab: Permission denied")
        return real(do, *args, **head)

    monkeypatch.setattr(rig.relay, "call", call)
    wait_until(lambda: rig.far.finish(f"{UUID}-1"), what="its end")
    assert (
        (here / "z").read_bytes() == b"small"
        and (here / "a").is_dir()
        and not (here / "secret").exists()
    )
    told = rig.paths.coming("job-7f3c2").read_text()
    assert told.startswith(
        f"a and 1 more (2.9 KiB) stay in lab:{rig.folder}/output/job-7f3c2: Is a directory; "
    )


@pytest.mark.parametrize("bad", [UUID, OTHER])
def test_a_job_whose_outputs_fail_keeps_no_other_from_its_own(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    """Whichever of them is the first."""
    monkeypatch.setattr(fetch_outputs, "AGAIN_S", 0.0)
    good = OTHER if bad == UUID else UUID
    for uuid in (bad, good):
        finished(rig, f"job-{uuid[:5]}", {"model": b"m"}, uuid)
    real = rig.relay.call

    def call(do: str, *args: Any, **head: Any) -> Any:
        if do == "get" and head["job"] == f"job-{bad[:5]}":
            raise OSError(errno.EIO, "lab: Input/output error")
        return real(do, *args, **head)

    monkeypatch.setattr(rig.relay, "call", call)
    wait_until(lambda: rig.far.finish(f"{good}-1"), what="its end")
    assert (rig.paths.output / f"job-{good[:5]}" / "model").read_bytes() == b"m"
    assert rig.far.finish(f"{bad}-1") is False and rig.far.shelf.unfinished() == {
        bad: f"job-{bad[:5]}"
    }
    monkeypatch.setattr(rig.relay, "call", real)
    wait_until(lambda: rig.far.finish(f"{bad}-1"), what="the other one's end")


# -- the wire


def reader(data: bytes) -> Any:
    view = [data]

    def read(length: int) -> bytes:
        found, view[0] = view[0][:length], view[0][length:]
        return found

    return read


@pytest.mark.parametrize("noise", [b"", b"motd\n", b"\n\n", b"no end of line", b"x" * 5000 + b"\n"])
def test_the_mark_is_found_after_any_noise_and_what_follows_is_left_alone(noise: bytes) -> None:
    mark = wire.mark_of("nonce")
    data = noise + f"\n{mark} ready\n".encode() + wire.encode({"id": 0}, b"body")
    read = reader(data)
    assert wire.find_mark(read, mark) == "ready"
    assert wire.receive(read) == ({"id": 0}, b"body")
    assert wire.receive(read) is None


@pytest.mark.parametrize(
    "data", [b"\xff" * 8, b"\0\0\0\2\0\0\0\0[]", b"\0\0\0\1\0\0\0\0{", b"Last login: Mon\n"]
)
def test_what_is_no_message_is_told(data: bytes) -> None:
    with pytest.raises(DamagedError):
        wire.receive(reader(data))


def test_an_endless_banner_is_given_up() -> None:
    with pytest.raises(DamagedError, match="of its own"):
        wire.find_mark(lambda n: b"x"[:n], "mark")
