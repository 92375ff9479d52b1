"""What a job tracks beside its points, from the training process to the command line: media, artifacts, definitions."""

import json
import textwrap
from pathlib import Path

import pytest

from tests.driver import PYTHON, Hw
from tests.waiting import wait_until


@pytest.mark.cap(26)
def test_a_file_that_was_put_comes_back_whole_by_its_name_and_version(
    home: Path, tmp_path: Path
) -> None:
    hw = Hw(home, tmp_path)
    large = bytes(range(256)) * 40_000  # linked, not copied: larger than ARTIFACT_COPY_BYTES_MAX
    hw.script(
        textwrap.dedent("""
        import os, headway as hw
        os.makedirs("out/sub", exist_ok=True)
        open("out/large.bin", "wb").write(bytes(range(256)) * 40_000)
        open("out/sub/empty", "w").close()
        open("out/note.txt", "w").write("one")
        hw.artifact("out", name="model", type="model", metadata={"acc": 0.5}, aliases=["best"])
        open("out/new.txt", "w").write("two")
        os.replace("out/new.txt", "out/note.txt")
        hw.artifact("out", name="model", type="model")
        hw.artifact("out", name="model", type="model")  # nothing has changed: no new version
        """)
    )
    job = hw.submit(PYTHON, "train.py")
    hw.wait_state(job, "succeeded")
    found = wait_until(
        lambda: (rows := hw.json("artifacts", "ls")) and len(rows) == 2 and rows, what="both"
    )
    newest, oldest = found
    assert [row["version"] for row in found] == ["v1", "v0"] and oldest["aliases"] == ["best"]
    assert (
        newest["made_by"] == [job]
        and oldest["meta"] == {"acc": 0.5}
        and newest["size"] == len(large) + 3
    )
    hw("artifacts", "get", "model:best", "-o", "got")
    assert (
        (tmp_path / "got" / "large.bin").read_bytes()
        == large
        == (tmp_path / "out" / "large.bin").read_bytes()
    )
    assert (tmp_path / "got" / "note.txt").read_text() == "one" and (
        tmp_path / "got" / "sub" / "empty"
    ).exists()
    blobs = list((home / "artifacts").glob("??/*"))
    assert len(blobs) == 3  # large once, and two notes


@pytest.mark.cap(26)
def test_an_artifact_of_one_job_is_used_by_another(home: Path, tmp_path: Path) -> None:
    hw = Hw(home, tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("x\n1\n")
    hw("artifacts", "put", "in", "--name", "train")
    hw.script(
        textwrap.dedent("""
        import headway as hw
        folder = hw.use_artifact("train:latest")
        assert len(open(folder + "/a.csv").read()) == 4
        hw.data("in")
        try:
            hw.use_artifact("nothing")
        except OSError as error:
            print(error)
        """)
    )
    job = hw.submit(PYTHON, "train.py")
    hw.wait_state(job, "succeeded")
    wait_until(lambda: hw.json("artifacts", "ls", "train")[0]["used_by"] == [job], what="the use")
    assert b"there is no artifact 'nothing'" in hw("logs", job).stdout


@pytest.mark.cap(26)
def test_media_and_definitions_reach_the_command_line(home: Path, tmp_path: Path) -> None:
    hw = Hw(home, tmp_path)
    hw.script(
        textwrap.dedent("""
        import headway as hw, numpy as np
        hw.define_metric("val/*", x="epoch", goal="max")
        hw.summary["test/acc"] = 0.9
        hw.log({"img": hw.Image(np.zeros((4, 5, 3))), "big": hw.File(b"x" * 1_500_000)}, step=3)
        hw.log({"val/acc": 0.5}, step=3, tags={"split": "a"})
        """)
    )
    job = hw.submit(PYTHON, "train.py")
    hw.wait_state(job, "succeeded")
    rows = hw.json("media", job)
    assert [(row["name"], row["step"], row["kind"], row["size"]) for row in rows][1] == (
        "big",
        3,
        "file",
        1_500_000,
    )
    hw("media", job, "-o", "media")
    listed = json.loads((tmp_path / "media" / "media.json").read_text())
    assert (tmp_path / "media" / listed[0]["file"]).read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "media" / listed[1]["file"]).read_bytes() == b"x" * 1_500_000
    assert list(hw.json("metrics", job)[job]) == ["val/acc{split=a}"]


@pytest.mark.cap(26)
def test_a_path_that_is_put_from_the_command_line_is_sent_once(home: Path, tmp_path: Path) -> None:
    hw = Hw(home, tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("x\n1\n")
    assert (
        hw("artifacts", "put", "data", "--name", "train", "--type", "data").stdout.decode().strip()
        == "train:v0"
    )
    assert hw("artifacts", "put", "data", "--name", "train").stdout.decode().strip() == "train:v0"
    (tmp_path / "data" / "a.csv").write_text("x\n2\n")
    assert hw("artifacts", "put", "data", "--name", "train").stdout.decode().strip() == "train:v1"
    assert hw("artifacts", "rm", "train").returncode == 2  # which version?
    assert hw("artifacts", "rm", "train:v1").stdout.decode() == "train:v1  removed\n"
    assert [row["version"] for row in hw.json("artifacts", "ls")] == ["v0"]
