"""The local engine beyond the contract: GPU slots, broken agents, killed agents, reused pids (F23,
F29, F30, F44).
"""

import json
import os
import stat
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.engines import registry
from headway.engines.local import engine, slots
from headway.engines.protocol import EngineId, Given, Salvager
from headway.engines.spool import task_folder as folders
from headway.home.paths import Paths
from headway.model.errors import RefusedError, UnreachableError, UsageError
from headway.wire import file_lock, identity
from tests.contract.engine.harness import SETTINGS, LocalHarness
from tests.waiting import wait_until


@pytest.fixture
def harness(home: Path) -> Iterator[LocalHarness]:
    made = LocalHarness(home, gpus=4)
    yield made
    made.close()


def gpus_of(harness: LocalHarness, engine_id: EngineId) -> list[int]:
    return json.loads((harness.folder(engine_id) / "task.json").read_text())["gpus"]  # type: ignore[no-any-return]


# -- GPUs


def test_n_processes_take_n_gpus_and_see_only_theirs(harness: LocalHarness) -> None:
    script = "echo $CUDA_VISIBLE_DEVICES; sleep 60"
    first = harness.start(harness.job("sh", "-c", script, processes=3))
    second = harness.start(harness.job("sh", "-c", script))
    wait_until(
        lambda: harness.output(second).strip() == "3" and harness.output(first).strip() == "0,1,2",
        what="GPUs",
    )
    with pytest.raises(UnreachableError, match="GPUs are free"):
        harness.start(harness.job("true"))


def test_more_gpus_than_exist_are_refused_with_both_numbers(harness: LocalHarness) -> None:
    with pytest.raises(RefusedError, match="5 GPUs, this machine has 4"):
        harness.engine.plan(harness.job("true", processes=5))


def test_gpus_of_an_ended_task_are_free_again(harness: LocalHarness) -> None:
    for _ in range(3):
        engine_id = harness.start(harness.job("true", processes=4))
        harness.wait_over(engine_id)
        folders_sent(harness, engine_id)


def test_gpus_of_a_task_whose_spool_was_sent_and_removed_are_free_again(
    harness: LocalHarness,
) -> None:
    done = harness.start(harness.job("true", processes=2))
    harness.wait_over(done)
    folders.remove(harness.folder(done))
    running = harness.start(harness.job("sleep", "60", processes=2))
    harness.wait_running(running)
    aside = harness.folder(running).rename(harness.paths.home / "aside")
    # removed under a running task: its processes still have them
    with pytest.raises(UnreachableError):
        harness.start(harness.job("true", processes=3))
    aside.rename(harness.folder(running))


def folders_sent(harness: LocalHarness, engine_id: EngineId) -> None:
    """As if a shipper had sent everything."""
    folder = harness.folder(engine_id)
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    (folder / "cursor.json").write_text(json.dumps(sizes))
    assert harness.engine.observe([engine_id])[engine_id].detail.get("drained")


def test_a_restarted_engine_remembers_whose_gpu_is_whose(harness: LocalHarness) -> None:
    first = harness.start(harness.job("sleep", "60", processes=2))
    harness.wait_running(first)
    harness.restart()
    harness.engine.observe([first])
    assert gpus_of(harness, harness.start(harness.job("sleep", "60"))) == [2]


def test_a_killed_agent_does_not_free_the_gpus_of_processes_that_still_run(
    harness: LocalHarness,
) -> None:
    """F30."""
    first = harness.start(harness.job("sleep", "60", processes=2))
    harness.wait_running(first)
    harness.kill_agent(first)
    try:
        assert gpus_of(harness, harness.start(harness.job("true"))) == [2]
    finally:
        end_ranks(harness, first)


def end_ranks(harness: LocalHarness, engine_id: EngineId) -> None:
    """Orphans of a killed fake shim: found by their output file, which nobody else has open."""
    target = str(harness.folder(engine_id))
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                links = [os.readlink(fd) for fd in (entry / "fd").iterdir()]
            except OSError:
                continue
            if any(link.startswith(target) for link in links):
                os.kill(int(entry.name), 9)


def test_a_driver_that_hangs_costs_the_number_only() -> None:
    """F44."""
    release = threading.Event()
    count = slots.GpuCount(None, lambda: 8 if release.wait(60) else 0, timeout_s=0.05)
    assert count.get() == (0, "NVML did not answer within 0.05 s")
    release.set()
    assert wait_until(lambda: count.get()[0] == 8 and count.get(), what="the late answer") == (
        8,
        "nvml",
    )


def test_a_driver_that_raises_anything_counts_as_no_gpu() -> None:
    def broken() -> int:
        raise RuntimeError("Xid 79")

    assert slots.GpuCount(None, broken).get() == (0, "none found")
    assert slots.GpuCount(2, broken).get() == (2, "setting")


def nvml(monkeypatch: pytest.MonkeyPatch, count: int | None) -> list[str]:
    """A driver with so many GPUs; None: no driver. The calls that were made."""
    calls: list[str] = []
    fake = types.ModuleType("pynvml")

    class NVMLError(Exception):
        pass

    def init() -> None:
        calls.append("init")
        if count is None:
            raise NVMLError("driver not loaded")

    vars(fake).update(
        NVMLError=NVMLError,
        nvmlInit=init,
        nvmlDeviceGetCount=lambda: count,
        nvmlShutdown=lambda: calls.append("end"),
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return calls


def test_gpus_are_counted_by_nvml_and_the_driver_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = nvml(monkeypatch, 4)
    assert slots.GpuCount(None).get() == (4, "nvml") and calls == ["init", "end"]


def test_a_machine_without_a_driver_or_without_nvml_has_no_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml(monkeypatch, None)
    assert slots.GpuCount(None).get() == (0, "none found")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert slots.GpuCount(None).get() == (0, "none found")


# -- starting


def test_files_of_a_task_are_for_their_owner_alone(harness: LocalHarness) -> None:
    old = os.umask(0)
    try:
        engine_id = harness.start(harness.job("sleep", "60"), {"MY_KEY": "secret"})
    finally:
        os.umask(old)
    folder = harness.folder(engine_id)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "task.json").stat().st_mode) == 0o600
    task = json.loads((folder / "task.json").read_text())
    assert task["token"] == "id.secret" and task["secret_names"] == ["MY_KEY"] and "env" not in task


def test_the_agent_inherits_nothing_of_the_servers(
    harness: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVERS_SECRET", "hunter22")
    listening = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(listening, True)
    try:
        engine_id = harness.start(harness.job("sleep", "60"))
        harness.wait_running(engine_id)
        pid = json.loads((harness.folder(engine_id) / "shim.json").read_text())["pid"]
        assert b"hunter22" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert os.readlink(f"/proc/{pid}/cwd") == "/" and os.getsid(pid) == pid
        assert all(int(fd) < 10 for fd in os.listdir(f"/proc/{pid}/fd"))
    finally:
        os.close(listening)


def test_a_folder_that_vanished_is_refused_with_its_name(harness: LocalHarness) -> None:
    job = harness.job("true", cwd="/no/such/folder")
    with pytest.raises(RefusedError, match="/no/such/folder"):
        harness.start(job)
    assert harness.engine.find(f"{job.uuid}-1") is None


def test_an_agent_that_dies_before_it_has_started_is_told_with_its_code(
    harness: LocalHarness,
) -> None:
    engine_id = harness.start(harness.job("true"), {"HEADWAY_FAKE": "dies before it has started"})
    wait_until(lambda: harness.state(engine_id) == "gone", what="its death")
    seen = harness.engine.observe([engine_id])[engine_id]
    assert "ended with 5" in seen.state_word and seen.detail["started"] is False


def test_after_a_restart_an_agent_that_never_spoke_is_gone_only_after_a_while(
    harness: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine_id = harness.start(harness.job("true"), {"HEADWAY_FAKE": "dies before it has started"})
    wait_until(lambda: harness.state(engine_id) == "gone", what="its death")
    harness.restart()
    assert harness.state(engine_id) == "starting"
    monkeypatch.setattr(engine, "START_TIMEOUT_S", 0.0)
    assert harness.engine.observe([engine_id])[engine_id].detail["started"] is False


def test_a_half_made_folder_is_never_seen_and_is_swept(harness: LocalHarness) -> None:
    job = harness.job("sleep", "60")
    left = harness.paths.spool / f".new-{job.uuid}-1-worker-0-00000000"
    left.mkdir(parents=True)
    assert harness.engine.find(f"{job.uuid}-1") is None and harness.engine.tasks() == []
    harness.restart()
    assert not left.exists()


def test_a_folder_that_a_power_cut_emptied_is_made_again(harness: LocalHarness) -> None:
    job = harness.job("sleep", "60")
    folder = harness.paths.spool / f"{job.uuid}-1-worker-0"
    folder.mkdir(parents=True)
    (folder / "task.json").touch()
    engine_id = harness.start(job)
    harness.wait_running(engine_id)
    assert harness.starts(engine_id) == 1


def test_a_full_disk_is_told_as_temporary(
    harness: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders, "make", full)
    with pytest.raises(UnreachableError, match="No space left"):
        harness.start(harness.job("true"))


def test_a_key_of_another_attempt_is_refused(harness: LocalHarness) -> None:
    plan = harness.engine.plan(harness.job("true"))
    with pytest.raises(UsageError):
        harness.engine.submit(
            plan, "00000000-0000-0000-0000-000000000000-1", Given({}, {"worker-0": "t"})
        )


@pytest.mark.parametrize("name", ["../../etc", "x", "", f"{'a' * 36}-1-worker-0", "/etc/passwd"])
def test_an_id_that_is_not_ours_reaches_no_path(harness: LocalHarness, name: str) -> None:
    """B20."""
    for call in (
        harness.engine.cancel,
        harness.engine.discard,
        lambda n: harness.engine.observe([n]),
    ):
        with pytest.raises(UsageError):
            call(EngineId(name))


# -- knowing a process


def test_a_reused_pid_is_not_our_process_and_is_never_signalled(harness: LocalHarness) -> None:
    """F29."""
    engine_id = harness.start(harness.job("true"))
    harness.wait_over(engine_id)
    code = "import time; print(1, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline()
        start = identity.start_of(other.pid)
        assert start is not None
        wrong = {"pid": other.pid, "start": start - 1, "boot_id": identity.boot_id()}
        (harness.folder(engine_id) / "shim.json").write_text(json.dumps(wrong))
        assert harness.state(engine_id) != "running"
        assert harness.engine.cancel(engine_id) is False
        other_boot = {"pid": other.pid, "start": start, "boot_id": "another boot"}
        (harness.folder(engine_id) / "shim.json").write_text(json.dumps(other_boot))
        assert harness.engine.cancel(engine_id) is False
        assert other.poll() is None
        other.kill()


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen(["true"])
    start = wait_until(lambda: identity.start_of(child.pid) or "gone", what="a start")
    wait_until(lambda: identity.start_of(child.pid) is None, what="the zombie")
    assert not identity.is_alive(
        identity.Identity(child.pid, start if isinstance(start, int) else 1)
    )
    child.wait()


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"pid": "1"}', '{"pid": -1}', "null", '{"pid": true, "start": 1}']
)
def test_a_damaged_shim_json_is_a_task_that_cannot_be_seen(
    harness: LocalHarness, text: str
) -> None:
    engine_id = harness.start(harness.job("true"))
    harness.wait_over(engine_id)
    (harness.folder(engine_id) / "shim.json").write_text(text)
    assert harness.state(engine_id) in ("ended", "gone")
    assert harness.engine.cancel(engine_id) is False


# -- salvage


def adopted(harness: LocalHarness, engine_id: EngineId) -> int:
    path = harness.folder(engine_id) / "adopted"
    return len(path.read_text().split()) if path.exists() else 0


def test_unsent_data_of_a_dead_agent_is_salvaged_once(harness: LocalHarness) -> None:
    engine_id = harness.start(harness.job("echo", "hello"))
    harness.wait_over(engine_id)
    assert isinstance(harness.engine, Salvager)
    assert harness.engine.observe([engine_id])[engine_id].detail.get("salvage")
    assert harness.engine.salvage(engine_id)
    wait_until(
        lambda: harness.engine.observe([engine_id])[engine_id].detail.get("drained"),
        what="all sent",
    )
    assert harness.engine.salvage(engine_id) is False and adopted(harness, engine_id) == 1


def test_a_preallocated_tail_is_not_unsent(harness: LocalHarness) -> None:
    """F14."""
    engine_id = harness.start(harness.job("true"))
    harness.wait_over(engine_id)
    folder = harness.folder(engine_id)
    data = (folder / "shim").read_bytes()
    assert len(data) == 4096 and folders.unsent(folder) == ["shim"]
    (folder / "cursor.json").write_text(json.dumps({"shim": len(data.rstrip(b"\0"))}))
    assert folders.unsent(folder) == []
    (folder / "stdout-0").write_bytes(b"\0\0")
    assert folders.unsent(folder) == ["stdout-0"]  # zeros that a program printed are its output


def test_a_task_whose_agent_lives_is_not_salvaged(harness: LocalHarness) -> None:
    engine_id = harness.start(harness.job("sleep", "60"))
    harness.wait_running(engine_id)
    assert harness.engine.salvage(engine_id) is False


def test_a_lock_that_is_held_is_seen_and_a_missing_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not file_lock.is_held(path)
    code = "import fcntl,sys,time; f=open(sys.argv[1],'w'); fcntl.flock(f,2); print(1,flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline()
        assert file_lock.is_held(path)
        holder.kill()
    assert not file_lock.is_held(path)


def test_discard_removes_what_is_over_and_nothing_that_runs(harness: LocalHarness) -> None:
    code = "import fcntl,sys,time; f=open(sys.argv[1],'w'); fcntl.flock(f,2); print(1,flush=True); time.sleep(60)"
    sending = harness.start(harness.job("true"))
    harness.wait_over(sending)
    lock = harness.folder(sending) / "shipper.lock"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline()
        harness.engine.discard(sending)  # a shipper is still at work
        assert harness.folder(sending).exists()
        holder.kill()
    harness.engine.discard(sending)
    over, running = harness.start(harness.job("true")), harness.start(harness.job("sleep", "60"))
    harness.wait_over(over)
    harness.wait_running(running)
    harness.engine.discard(over)
    harness.engine.discard(running)
    assert [engine_id for engine_id, _ in harness.engine.tasks()] == [running]


# -- registry


def test_the_cluster_here_is_the_local_engine(tmp_path: Path) -> None:
    assert registry.engine_for("here", Paths(tmp_path), SETTINGS.__getitem__).name == "local"


def test_an_unknown_cluster_names_the_nearest() -> None:
    with pytest.raises(UsageError) as error:
        registry.engine_for("hree", Paths(Path("/nowhere")), SETTINGS.__getitem__)
    assert "here" in error.value.hint
