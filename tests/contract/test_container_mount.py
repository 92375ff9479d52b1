"""`mount:` of a folder of a job in containers: mounted outside, seen inside, and nothing of it
stays (48).
"""

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.carrier import mount
from headway.engines.docker import folder_carrier
from headway.model.errors import RefusedError
from headway.model.job import Folder
from tests import container, container_image, needs, processes
from tests.driver import Hw
from tests.waiting import wait_until

pytestmark = pytest.mark.cap(48, 60)
BUCKET = f"c{os.urandom(4).hex()}"


@pytest.fixture
def hw(home: Path, tmp_path: Path, docker: list[str], s3: int) -> Iterator[Hw]:
    """With a bucket that holds data/a.txt."""
    needs.tool("rclone", "rclone fuse3")
    needs.allowed("mounting with FUSE is", "test", "-w", "/dev/fuse")
    cwd, address = tmp_path / "work", f"http://127.0.0.1:{s3}"
    cwd.mkdir()
    common = {"engine": "docker", "command": docker, "network": "none"}
    box, bare = (
        {**common, "image": image} for image in (container_image.PYTHON, container_image.BARE)
    )
    account = {"kind": "s3", "endpoint": address, "key_id": "LAB_ID", "secret": "LAB_SECRET"}
    settings = {"clusters": {"box": box, "bare": bare}, "accounts": {"lab": account}}
    (cwd / "headway.yaml").write_text(json.dumps(settings))
    driver = Hw(home, cwd)
    driver.env |= {"LAB_ID": "testing", "LAB_SECRET": "testing-secret"}
    urllib.request.urlopen(urllib.request.Request(f"{address}/{BUCKET}", method="PUT")).close()
    (cwd / "a.txt").write_text("data\n")
    assert driver("storage", "upload", "a.txt", f"s3://{BUCKET}/data/").returncode == 0
    yield driver
    driver("abort", "--state", "running,waiting", "--yes")
    container.wait_removed(docker, home)


def _mounted(hw: Hw) -> list[str]:
    return [line for line in Path("/proc/mounts").read_text().splitlines() if str(hw.home) in line]


def _job(hw: Hw, program: str, **more: Any) -> str:
    folders = {"data": {"from": f"s3://{BUCKET}/data", "mount": "rclone", **more.pop("folder", {})}}
    (hw.cwd / "job.yaml").write_text(
        json.dumps({"command": ["sh", "-c", program], "folders": folders, **more})
    )
    return "job.yaml"


@pytest.mark.parametrize("cluster", ["box", "bare"])
def test_a_folder_is_mounted_into_a_container_and_unmounted_at_its_end(
    hw: Hw, cluster: str
) -> None:
    name = f"{cluster}.txt"
    program = f"cat data/a.txt $HEADWAY_FOLDER_DATA/a.txt; echo made > data/{name}; env | grep -c testing-secret"
    done = hw("-c", cluster, "run", _job(hw, program))
    assert done.stdout.decode() == "data\ndata\n0\n", done.stderr.decode()
    assert name in [row["name"] for row in hw.json("storage", "ls", f"s3://{BUCKET}/data")]
    assert not os.path.lexists(hw.cwd / "data")
    wait_until(lambda: not _mounted(hw), what="the end of every mount")
    wait_until(
        lambda: not any((hw.home / "folders" / "mounts").iterdir()),
        what="that nothing of it is left",
    )


def test_each_container_of_a_job_sees_its_own_mount_until_its_end(hw: Hw) -> None:
    """They share the working folder, and the first that ends takes nothing from the others."""
    program = (
        "cat data/a.txt; [ $RANK = 0 ] || while [ ! -e go ]; do sleep 0.1; done; cat data/a.txt"
    )
    job = hw.submit("-c", "box", _job(hw, program, nodes=2, folder={"mode": "ro"}))

    def first_is_over() -> bool:
        attempts = hw.json("q", job)["attempts"]
        states = {t["name"]: t["state"] for t in attempts[-1]["tasks"]} if attempts else {}
        return states.get("worker-0") == "ended"

    wait_until(first_is_over, what="the end of the first task")
    (hw.cwd / "go").touch()
    assert hw.wait_ended(job)["state"] == "succeeded", hw("q", job).stdout.decode()
    wait_until(lambda: not _mounted(hw), what="the end of every mount")
    assert not os.path.lexists(hw.cwd / "data")


@pytest.mark.parametrize("what", ["the container", "everything"])
def test_nothing_stays_mounted_whoever_is_killed(hw: Hw, docker: list[str], what: str) -> None:
    job = hw.submit("-c", "box", _job(hw, "cat data/a.txt; exec sleep 100"))
    wait_until(
        lambda: b"data" in hw("logs", job, "--stream", "stdout").stdout, what="the job's output"
    )
    assert _mounted(hw)
    if what == "everything":
        for pid, words in processes.of_home(hw.home).items():
            if not words.startswith("rclone"):
                os.kill(pid, signal.SIGKILL)
    subprocess.run(
        [*docker, "kill", *container.of_home(docker, hw.home)], check=False, capture_output=True
    )
    found = hw.wait_ended(job)
    assert (
        found["state"] == "failed"
        and found["attempts"][-1]["cause"]["cause"] == "sigkill_unexplained"
    )
    wait_until(lambda: not _mounted(hw), what="the end of every mount")


def test_what_a_container_could_not_see_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folders = [Folder("plain", "s3://b/x"), Folder("data", "s3://b/x", mount="rclone")]
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(mount, "is_shared", lambda path: False)
    with pytest.raises(
        RefusedError,
        match="folder data cannot be mounted into a container: /base is not on a shared",
    ):
        folder_carrier.check_mounts(folders, "/base", "submitter")
    monkeypatch.setattr(mount, "is_shared", lambda path: True)
    with pytest.raises(RefusedError, match="the container has the user image"):
        folder_carrier.check_mounts(folders, "/base", "image")
    folder_carrier.check_mounts(folders[:1], "/base", "image")
    folder_carrier.check_mounts(folders, "/base", "submitter")


def test_a_mount_is_shared_where_the_kernels_list_says_so(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("making a mount needs root")
    folder = tmp_path / "with space"
    folder.mkdir()
    needs.allowed("mounting is", "mount", "--bind", str(folder), str(folder))
    try:
        for option, shared in (("--make-private", False), ("--make-shared", True)):
            subprocess.run(["mount", option, str(folder)], check=True)
            assert (
                mount.is_shared(str(folder)) is shared
                and mount.is_shared(str(folder / "not there")) is shared
            )
    finally:
        subprocess.run(["umount", str(folder)], check=True)
