"""`hw storage` against real servers: moto's S3, Azurite's Blob, and a folder (capability 48)."""

import os
import urllib.request
from pathlib import Path

import pytest

from headway.storage.location import parse
from headway.storage.transfer import Storage
from headway.testing.port import reserve
from tests.driver import Hw


def fill(folder: Path) -> Path:
    (folder / "sub").mkdir(parents=True)
    (folder / "big.bin").write_bytes(os.urandom(9 * 1024 * 1024))  # more than one part
    for name in ("sub/a.txt", "sub/b c.txt", "ü.txt"):
        (folder / name).write_text(name)
    return folder


@pytest.mark.cap(48)
def test_files_go_there_and_come_back(hw: Hw, place: str, tmp_path: Path) -> None:
    data = fill(tmp_path / "data")
    sent = hw.json("storage", "upload", "data", place)
    assert (sent["files"], sent["passed_over"]) == (4, 0)
    assert hw.json("storage", "upload", "data", place)["passed_over"] == 4
    assert [row["name"] for row in hw.json("storage", "ls", place)] == ["sub/", "big.bin", "ü.txt"]
    assert hw.json("storage", "download", place, "back")["files"] == 4
    assert hw.json("storage", "download", place, "back")["passed_over"] == 4
    same = [path.relative_to(data) for path in data.rglob("*") if path.is_file()]
    assert all(
        (tmp_path / "back" / name).read_bytes() == (data / name).read_bytes() for name in same
    )
    (data / "sub/a.txt").write_text("changed!")
    assert hw.json("storage", "upload", "data", place)["files"] == 1
    assert hw("storage", "download", f"{place}/sub/a.txt", "one.txt").returncode == 0
    assert (tmp_path / "one.txt").read_text() == "changed!"


@pytest.mark.cap(48)
def test_removing_many_asks_and_removing_one_does_not(hw: Hw, place: str, tmp_path: Path) -> None:
    fill(tmp_path / "data")
    hw.json("storage", "upload", "data", place)
    if hw.env.get("BLOB_SECRET", "").startswith("?"):
        # the library removes in batches, and Azurite answers 500 to a batch that a token signs
        return
    assert hw("storage", "rm", f"{place}/ü.txt").returncode == 0
    refused = hw("storage", "rm", place)
    assert refused.returncode == 2 and b"nobody to ask" in refused.stderr
    assert hw.json("storage", "rm", place, "--dry-run") == {"removed": 0, "would_remove": 3}
    assert hw.json("storage", "rm", place, "--yes")["removed"] == 3
    assert hw("storage", "download", place, "back").returncode == 3


@pytest.mark.cap(48)
def test_an_address_works_without_an_account(hw: Hw, place: str, tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("hello")
    assert hw("storage", "upload", "f.txt", f"{place}/f.txt").returncode == 0
    if hw.env.get("BLOB_SECRET", "").startswith("?"):
        # a signature cannot sign another one
        assert hw("storage", "url", f"{place}/f.txt").returncode != 0
        return
    address = hw.json("storage", "url", f"{place}/f.txt", "--expires", "5m")["url"]
    with urllib.request.urlopen(address) as answer:
        assert answer.read() == b"hello"
    assert place.startswith("/") or hw("storage", "url", f"{place}/nothing").returncode == 3


@pytest.mark.cap(48)
def test_a_fetch_that_was_cut_off_goes_on_where_it_stopped(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    data = os.urandom(20 * 1024 * 1024)
    (there / "big").write_bytes(data)
    storage = Storage(parse(str(there / "big")), {})
    steps: list[int] = []

    def cut(files: int, size: int) -> None:
        steps.append(size)
        if sum(steps) > 8 * 1024 * 1024:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        storage.download(str(tmp_path / "out"), cut)
    assert not (tmp_path / "out").exists()  # half a file never has the name of a whole one
    told: list[int] = []
    storage.download(str(tmp_path / "out"), lambda files, size: told.append(size))
    assert (
        told[0] >= 8 * 1024 * 1024
        and sum(told) == len(data)
        and (tmp_path / "out").read_bytes() == data
    )
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".part"] == []


def test_a_storage_that_is_not_there_is_told_in_words(hw: Hw) -> None:
    hw.env |= {"LAB_ID": "someone", "LAB_SECRET": "a-long-secret"}
    row = f'{{kind: s3, endpoint: "http://127.0.0.1:{reserve()}", key_id: LAB_ID, secret: LAB_SECRET}}'
    (hw.cwd / "headway.yaml").write_text(f"accounts:\n  mine: {row}\n")
    done = hw("storage", "ls", "s3://bucket/x")
    assert (
        done.returncode == 4
        and b"is the address right" in done.stderr
        and b"a-long-secret" not in done.stderr
    )
