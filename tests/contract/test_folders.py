"""`folders:` of a job, end to end: fetched before the start, sent while it runs and at its end
(capability 48).
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests import needs, processes
from tests.driver import Hw, agents, alive, files_with
from tests.waiting import wait_until

pytestmark = pytest.mark.cap(48)


@pytest.fixture(autouse=True)
def quick(hw: Hw) -> None:
    hw.env["HEADWAY_SEND_INTERVAL_S"] = "0.3"


def job_file(
    hw: Hw, command: str, folders: dict[str, Any], name: str = "job.yaml", **more: Any
) -> str:
    text = json.dumps(
        {"name": "carry", "command": ["sh", "-c", command], "folders": folders, **more}
    )
    (hw.cwd / name).write_text(text)
    return name


def carriers(hw: Hw) -> list[int]:
    found = []
    for pid in processes.of_home(hw.home):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"headway.carrier" in words:
            found.append(pid)
    return found


def fill(hw: Hw, place: str) -> None:
    source = hw.cwd / "source"
    (source / "sub").mkdir(parents=True)
    (source / "a.txt").write_text("first")
    (source / "sub" / "b.txt").write_text("second")
    assert hw("storage", "upload", "source", place).returncode == 0


def fetched(hw: Hw, place: str, folder: str = "back") -> dict[str, str]:
    subprocess.run(["rm", "-rf", str(hw.cwd / folder)], check=True)
    done = hw("storage", "download", place, folder)
    assert done.returncode == 0, done.stderr.decode()
    root = hw.cwd / folder
    return {
        str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()
    }


def test_data_is_there_before_the_command_and_output_is_sent(hw: Hw, place: str) -> None:
    fill(hw, f"{place}/data")
    program = "cat data/a.txt $HEADWAY_FOLDER_DATA/sub/b.txt; mkdir -p output/deep; echo made > output/deep/r.txt"
    folders = {"data": {"from": f"{place}/data", "mode": "ro"}, "output": {"to": f"{place}/out"}}
    file = job_file(hw, f"{program}; env | grep -c STORAGE_KEYS; true", folders)
    done = hw("run", file)
    assert done.stdout.decode() == "firstsecond0\n", done.stderr.decode()
    assert fetched(hw, f"{place}/out") == {"deep/r.txt": "made\n"}
    job = hw.json("ls")[0]["id"]
    shown = hw.json("q", job)
    assert shown["folders"][0]["name"] == "data"
    told = {one["msg"][0]: one["state"] for one in shown["progress"] if one["source"] == "folder"}
    assert told.get("sending folder output") == "completed"
    for secret in (hw.env.get("LAB_SECRET"), hw.env.get("BLOB_SECRET")):
        assert secret is None or files_with(hw.home, secret) == []
    assert json.loads(hw("resubmit", job, "--json").stdout)["id"] != job
    again = hw.wait_ended(hw.json("ls")[0]["id"])
    assert again["state"] == "succeeded" and again["folders"] == shown["folders"]


@pytest.mark.parametrize("place", ["s3", "azure key"], indirect=True)
def test_a_second_job_does_not_fetch_what_is_there_and_sees_what_is_new(hw: Hw, place: str) -> None:
    fill(hw, f"{place}/data")
    file = job_file(
        hw,
        "cat data/*.txt; echo; stat -L -c %i data/sub/b.txt",
        {"data": {"from": f"{place}/data", "mode": "ro"}},
    )
    first, again = hw("run", file).stdout, hw("run", file).stdout
    assert first == again and first.startswith(b"first\n")
    (hw.cwd / "source" / "c.txt").write_text("third")
    hw("storage", "upload", "source", f"{place}/data")
    new = hw("run", file).stdout
    # the same file, linked
    assert new.startswith(b"firstthird\n") and new.split()[-1] == first.split()[-1]


@pytest.mark.parametrize("end", ["fails", "is aborted", "takes too long"])
def test_output_is_complete_however_the_job_ends(hw: Hw, tmp_path: Path, end: str) -> None:
    target = tmp_path / "kept"
    last = "exit 3" if end == "fails" else "sleep 100"
    program = f"trap 'echo late > output/late; exit 0' TERM; echo one > output/one; touch begun; {last} & wait $!; {last}"
    time = {"time": "2s"} if end == "takes too long" else {}
    job = hw.submit(job_file(hw, program, {"output": {"to": str(target)}}, **time))
    if end == "is aborted":
        wait_until(lambda: (hw.cwd / "begun").exists(), what="the program")
        hw("abort", job)
    found = hw.wait_ended(job)
    ends = {
        "fails": "failed unknown",
        "is aborted": "stopped cancelled",
        "takes too long": "failed walltime",
    }
    assert f"{found['state']} {found['cause']['cause']}" == ends[end]
    assert (target / "one").read_text() == "one\n"
    assert (target / "late").exists() == (end != "fails")


def test_files_go_while_the_job_runs_but_not_while_they_are_written(hw: Hw, tmp_path: Path) -> None:
    target = tmp_path / "kept"
    program = "exec 5> output/open; echo half >&5; echo whole > output/done; touch -d '1 minute ago' output/*; cat fifo"
    os.mkfifo(hw.cwd / "fifo")
    job = hw.submit(job_file(hw, program, {"output": {"to": str(target)}}))
    wait_until((target / "done").exists, what="the file that is whole")
    assert hw.json("q", job)["state"] == "running" and not (target / "open").exists()
    (hw.cwd / "fifo").write_text("go on\n")
    assert hw.wait_ended(job)["state"] == "succeeded"
    assert (target / "open").read_text() == "half\n"


def test_what_was_there_before_is_not_sent_unless_it_changed(hw: Hw, tmp_path: Path) -> None:
    target = tmp_path / "kept"
    (hw.cwd / "output").mkdir()
    for name in ("old", "changed"):
        (hw.cwd / "output" / name).write_text("before")
    assert (
        hw(
            "run", job_file(hw, "echo after > output/changed", {"output": {"to": str(target)}})
        ).returncode
        == 0
    )
    assert [path.name for path in target.iterdir()] == ["changed"]


def test_killed_agents_server_and_carriers_lose_nothing(hw: Hw, tmp_path: Path) -> None:
    target = tmp_path / "kept"
    os.mkfifo(hw.cwd / "fifo")
    program = "echo one > output/one; touch begun; cat fifo; echo two > output/two"
    job = hw.submit(job_file(hw, program, {"output": {"to": str(target)}}))
    wait_until((hw.cwd / "begun").exists, what="the program")
    (old,) = wait_until(lambda: carriers(hw), what="a carrier")
    hw.kill_server()
    for pid in [old, *agents(hw.home, "shipper")]:
        os.kill(pid, signal.SIGKILL)
    (hw.cwd / "fifo").write_text("go on\n")
    assert hw.wait_ended(job)["state"] == "succeeded"
    assert {path.name for path in target.iterdir()} == {"one", "two"}


def test_a_killed_shim_leaves_the_output_to_its_shipper(hw: Hw, tmp_path: Path) -> None:
    target = tmp_path / "kept"
    os.mkfifo(hw.cwd / "fifo")
    program = "touch begun; cat fifo; echo two > output/two"
    job = hw.submit(job_file(hw, program, {"output": {"to": str(target)}}))
    wait_until((hw.cwd / "begun").exists, what="the program")
    for pid in [*agents(hw.home, "shim"), *carriers(hw)]:
        os.kill(pid, signal.SIGKILL)
    (hw.cwd / "fifo").write_text("go on\n")
    found = wait_until(lambda: (f := hw.json("q", job)) and f["ended_at"] and f, what="the end")
    assert found["cause"]["cause"] == "agent_lost" and (target / "two").exists()


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_job_that_is_aborted_while_it_waits_for_its_data_never_starts(hw: Hw, place: str) -> None:
    fill(hw, f"{place}/data")
    file = job_file(
        hw, "touch ran; cat data/a.txt", {"data": {"from": f"{place}/data", "mode": "ro"}}
    )
    assert hw("run", file).stdout == b"first"
    (hw.cwd / "ran").unlink()
    (lock,) = (hw.home / "folders" / "cache").glob("*/.lock")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as a task does that fetches the same data
        job = hw.submit(file)
        wait_until(lambda: carriers(hw), what="a carrier")
        hw("abort", job)
        assert hw.wait_ended(job)["state"] == "stopped"
    wait_until(lambda: not carriers(hw), what="the carrier's end")
    assert not (hw.cwd / "ran").exists()


def test_data_that_is_gone_when_the_job_starts_ends_it_with_its_cause(
    hw: Hw, tmp_path: Path
) -> None:
    source = tmp_path / "data source"
    source.mkdir()
    os.mkfifo(hw.cwd / "fifo")
    blocker = hw.submit("cat", "fifo")
    job = hw.submit(
        job_file(hw, "touch ran", {"data": {"from": str(source), "mode": "ro"}}, after=[blocker])
    )
    source.rmdir()
    (hw.cwd / "fifo").write_text("go\n")
    found = hw.wait_ended(job)
    cause = found["cause"]
    assert (found["state"], cause["cause"], cause["class"]) == ("failed", "missing_file", "user")
    assert "the folder data could not be fetched" in cause["text"] and found["exit_code"] is None
    assert not (hw.cwd / "ran").exists()


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_output_that_cannot_be_sent_fails_the_job_and_names_what_is_missing(
    hw: Hw, place: str
) -> None:
    endpoint = (hw.cwd / "headway.yaml").read_text().split('endpoint: "')[1].split('"')[0]
    bucket = place.split("/")[2]
    remove = (
        f"import urllib.request as u; u.urlopen(u.Request('{endpoint}/{bucket}', method='DELETE'))"
    )
    (hw.cwd / "remove.py").write_text(remove)
    file = job_file(
        hw, "python3 remove.py; echo x > output/model.pt", {"output": {"to": f"{place}/out"}}
    )
    job = hw.submit(file)
    found = hw.wait_ended(job)
    assert (found["state"], found["cause"]["cause"]) == ("failed", "output_not_sent")
    text = found["cause"]["text"]
    assert (
        "model.pt" in text
        and f"hw storage upload --account mine {hw.cwd}/output {place}/out" in text
    )
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")).close()
    command = text.split("to send it: hw ")[1].split()
    assert hw(*command).returncode == 0 and fetched(hw, f"{place}/out") == {"model.pt": "x\n"}
    assert b"model.pt" in hw("q", job).stdout


def test_several_tasks_share_what_is_fetched_and_send_together(hw: Hw, tmp_path: Path) -> None:
    source, target = tmp_path / "there", tmp_path / "kept"
    source.mkdir()
    (source / "a").write_text("x")
    roles = {
        "worker": {"instances": 2, "command": ["sh", "-c", "cat work/a; echo $RANK > work/$RANK"]}
    }
    folders = {"work": {"from": str(source), "to": str(target)}}
    (hw.cwd / "job.yaml").write_text(
        json.dumps({"name": "two", "roles": roles, "folders": folders})
    )
    job = hw.submit("job.yaml")
    assert hw.wait_ended(job)["state"] == "succeeded", hw(
        "logs", job, "--stream", "agent"
    ).stdout.decode()
    assert sorted(path.name for path in target.iterdir()) == ["0", "1"]


def test_a_job_that_runs_from_a_snapshot_has_its_folders_there(hw: Hw, tmp_path: Path) -> None:
    source, target = tmp_path / "there", tmp_path / "kept"
    source.mkdir()
    (source / "a").write_text("x")
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.sh").write_text("cat data/a; pwd > output/where")
    hw.cwd = project
    folders = {"data": {"from": "../there", "mode": "ro"}, "output": {"to": "../kept"}}
    (project / "job.yaml").write_text(json.dumps({"command": "sh train.sh", "folders": folders}))
    for _ in range(2):  # the second time the link of the first one is there, and is no code
        done = hw("run", "job.yaml")
        assert done.stdout == b"x", done.stderr.decode()
    done = hw("run", "--snapshot", "job.yaml")
    assert done.stdout == b"x", done.stderr.decode()
    assert "checkouts" in (target / "where").read_text()


def test_project_folders_count_for_every_job_and_the_jobs_own_stand_above(
    hw: Hw, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text(name)
    (hw.cwd / "headway.yaml").write_text(
        json.dumps({"folders": {"data": {"from": "one", "mode": "ro"}}})
    )
    assert hw("run", "cat", "data/f").stdout == b"one"
    assert (
        hw("run", job_file(hw, "cat data/f", {"data": {"from": "two", "mode": "ro"}})).stdout
        == b"two"
    )


@pytest.mark.parametrize(
    ("folders", "words"),
    [
        ({"data": {"from": "s3://bucket/x", "account": "nobody"}}, 'no account "nobody"'),
        ({"data": {"from": "not there", "mode": "ro"}}, "which does not exist"),
        ({"data": {"from": ".", "to": "out", "mode": "ro"}}, "read only"),
        ({"data": {"mode": "ro"}}, "comes from nowhere"),
        ({"data": {"from": "http://x/y"}}, "unknown kind of storage"),
        ({"data": {"from": "."}, "data/more": {"from": "."}}, "lies in the folder"),
        ({"full": {"from": "source"}}, "is there already"),
        ({"data": {"from": "source", "mount": "rclone"}}, "nothing is to mount"),
        ({"data": {"from": "s3://bucket/x", "mount": "blobfuse2"}}, "cannot mount"),
        ({"data": {"from": "source", "options": ["--x"]}}, "none is named"),
    ],
)
def test_what_can_be_known_is_refused_when_it_is_submitted(
    hw: Hw, folders: dict[str, Any], words: str
) -> None:
    for name in ("source", "full"):
        (hw.cwd / name).mkdir()
    (hw.cwd / "full" / "mine").write_text("x")
    hw.env |= {
        "AWS_ENDPOINT": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
    }
    done = hw("submit", job_file(hw, "true", folders))
    assert done.returncode == 2 and words in done.stderr.decode(), done.stderr.decode()
    assert hw.json("ls") == []


@pytest.mark.parametrize("place", ["s3", "azure key"], indirect=True)
def test_a_source_that_is_empty_is_told_when_it_is_submitted(hw: Hw, place: str) -> None:
    done = hw("submit", job_file(hw, "true", {"data": {"from": f"{place}/typo"}}))
    assert done.returncode == 2 and f"there is nothing at {place}/typo" in done.stderr.decode()


def test_an_array_that_would_send_one_folder_for_all_is_refused(hw: Hw, tmp_path: Path) -> None:
    file = job_file(
        hw, "true {{ index }}", {"output": {"to": str(tmp_path / "kept-{{ index }}")}}, array=2
    )
    done = hw("submit", file)
    assert done.returncode == 2 and b"--snapshot" in done.stderr


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_dry_run_shows_the_folders_and_no_key(hw: Hw, place: str) -> None:
    fill(hw, f"{place}/data")
    hw.env["LAB_SECRET"] = "a-very-long-secret"
    done = hw(
        "submit",
        "--dry-run",
        job_file(hw, "true", {"data": {"from": f"{place}/data", "mode": "ro"}}),
    )
    text = done.stdout.decode()
    assert (
        f"folder ./data from {place}/data (account mine), read only, as HEADWAY_FOLDER_DATA" in text
    )
    assert (
        "a-very-long-secret" not in text + done.stderr.decode() and not (hw.cwd / "data").exists()
    )


def test_a_dry_run_says_that_a_link_protects_nothing(hw: Hw) -> None:
    (hw.cwd / "words").mkdir()
    done = hw(
        "submit",
        "--dry-run",
        job_file(hw, "true", {"data": {"from": str(hw.cwd / "words"), "mode": "ro"}}),
    )
    text = done.stdout.decode()
    assert (
        f"folder ./data from {hw.cwd}/words, to be read only: a link, and the job may there what its"
        in text
    ), text


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_mount_tool_that_fails_is_told_and_its_command_line_has_no_key(
    hw: Hw, place: str, tmp_path: Path
) -> None:
    needs.allowed("mounting with FUSE is", "test", "-w", "/dev/fuse")
    stub = tmp_path / "bin" / "rclone"
    stub.parent.mkdir()
    stub.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/argv\nenv > {tmp_path}/env\nexit 3\n')
    stub.chmod(0o755)
    hw.env |= {"PATH": f"{stub.parent}:{hw.env['PATH']}", "LAB_SECRET": "a-very-long-secret"}
    fill(hw, f"{place}/data")
    folder = {"from": f"{place}/data", "mount": "rclone", "options": ["--dir-cache-time", "1s"]}
    found = hw.wait_ended(hw.submit(job_file(hw, "touch ran", {"data": folder})))
    assert (found["state"], found["cause"]["cause"]) == ("failed", "storage_io")
    assert (
        "rclone ended with 3 before it had mounted" in found["cause"]["text"]
        and not (hw.cwd / "ran").exists()
    )
    words = (tmp_path / "argv").read_text()
    assert words.startswith(f"mount headway:{place[5:]}/data ") and words.endswith(
        "--dir-cache-time 1s\n"
    )
    assert "a-very-long-secret" not in words
    assert (
        "RCLONE_CONFIG_HEADWAY_SECRET_ACCESS_KEY=a-very-long-secret"
        in (tmp_path / "env").read_text()
    )


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_folder_is_mounted_for_the_job_and_unmounted_at_its_end(hw: Hw, place: str) -> None:
    needs.tool("rclone", "rclone fuse3")
    needs.allowed("mounting with FUSE is", "test", "-w", "/dev/fuse")
    fill(hw, f"{place}/data")
    program = (
        "cat data/a.txt; echo made > data/new.txt; mkdir data/deep; cp data/a.txt data/deep/b.txt"
    )
    done = hw("run", job_file(hw, program, {"data": {"from": f"{place}/data", "mount": "rclone"}}))
    assert done.stdout == b"first", done.stderr.decode()
    found = fetched(hw, f"{place}/data")
    assert found["new.txt"] == "made\n" and found["deep/b.txt"] == "first"
    assert (
        not os.path.lexists(hw.cwd / "data")
        and str(hw.home) not in Path("/proc/mounts").read_text()
    )


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_mounted_folder_stays_for_the_other_tasks_when_one_ends(hw: Hw, place: str) -> None:
    """They have one working folder, and so one path for it; also another job that was submitted
    there.
    """
    needs.tool("rclone", "rclone fuse3")
    needs.allowed("mounting with FUSE is", "test", "-w", "/dev/fuse")
    fill(hw, f"{place}/data")
    folder = {"data": {"from": f"{place}/data", "mount": "rclone", "mode": "ro"}}
    wait = "while [ ! -e go ]; do sleep 0.1; done"
    program = f"cat data/a.txt; [ $RANK = $ENDS ] || {{ {wait}; cat data/a.txt; }}"
    (hw.cwd / "job.yaml").write_text(
        json.dumps({"command": ["sh", "-c", program], "folders": folder, "nodes": 2})
    )
    jobs = [hw.submit("--env", f"ENDS={number}", "job.yaml") for number in range(2)]

    def ended(job: str) -> list[str]:
        attempts = hw.json("q", job)["attempts"]
        return (
            [task["name"] for task in attempts[-1]["tasks"] if task["state"] == "ended"]
            if attempts
            else []
        )

    for number, job in enumerate(jobs):
        wait_until(
            lambda job=job, number=number: ended(job) == [f"worker-{number}"],
            what=f"the end of task {number}",
        )
    (hw.cwd / "go").touch()
    for job in jobs:
        assert hw.wait_ended(job)["state"] == "succeeded", hw("logs", job).stdout.decode()
    wait_until(
        lambda: str(hw.home) not in Path("/proc/mounts").read_text(), what="the end of the mount"
    )
    wait_until(lambda: not os.path.lexists(hw.cwd / "data"), what="the end of the link")
    wait_until(
        lambda: not any((hw.home / "folders" / "mounts").iterdir()),
        what="that nothing of it is left",
    )


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_mount_that_hangs_holds_up_neither_the_end_of_its_job_nor_other_jobs(
    hw: Hw, place: str
) -> None:
    needs.tool("rclone", "rclone fuse3")
    needs.allowed("mounting with FUSE is", "test", "-w", "/dev/fuse")
    fill(hw, f"{place}/data")
    options = ["--dir-cache-time", "0s", "--attr-timeout", "0s"]
    folder = {"from": f"{place}/data", "mount": "rclone", "mode": "ro", "options": options}
    program = (
        "cat data/a.txt; while [ ! -e go ]; do sleep 0.1; done; touch asks; ls data/none data/"
    )
    job = hw.submit(job_file(hw, program, {"data": folder}))
    wait_until(lambda: b"first" in hw("logs", job).stdout, what="the job's output")
    (note,) = (hw.home / "folders" / "mounts").glob("*/*.tool")
    pid = json.loads(note.read_text())["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        (hw.cwd / "go").touch()
        wait_until((hw.cwd / "asks").exists, what="that it asks the tool")
        assert hw("run", "echo", "other").stdout == b"other\n"
        assert hw("abort", job).returncode == 0
        assert hw.wait_ended(job)["state"] == "stopped"
        wait_until(lambda: not alive(pid), what="the end of the tool")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    assert str(hw.home) not in Path("/proc/mounts").read_text() and not os.path.lexists(
        hw.cwd / "data"
    )
