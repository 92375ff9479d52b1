"""`hw gc` in the folder of a cluster: what no task of any home needs goes, and nothing that a job
is about to use.
"""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from headway.carrier import folder_paths
from headway.code import snapshot
from headway.code.depot import Depot
from headway.engines.spool.cluster_folder import Shelf
from headway.model.limits import CODE_KEEP_S, FOLDER_CACHE_S
from tests.driver import Hw

pytestmark = pytest.mark.cap(47, 48)
OLD_S = time.time() - max(CODE_KEEP_S, FOLDER_CACHE_S) - 60
OURS, THEIRS, OVER = (f"{number:08d}-0000-4000-8000-000000000000" for number in range(3))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "lab"
    made.mkdir()
    return made


def old_code(folder: Path, text: str) -> str:
    """A snapshot that nobody has asked for in a long time."""
    tree = folder.parent / f"tree-{text}"
    tree.mkdir()
    (tree / "train.py").write_text(text)
    digest = snapshot.make(str(tree), Depot(folder / "code")).digest
    os.utime(folder / "code" / "manifests" / digest, (0, OLD_S))
    return digest


def old_data(folder: Path, name: str, uuid: str) -> Path:
    """Data that a job has fetched long ago, and the note of it."""
    base = folder / "folders"
    version = base / "cache" / "p" / name
    version.mkdir(parents=True)
    (version / "f").write_text("data")
    folder_paths.write_json(f"{version}.json", {})
    folder_paths.write_json(
        folder_paths.job_file(str(base), uuid, "data", "cached"), {"version": str(version)}
    )
    for path in (f"{version}.json", base / "jobs" / uuid):
        os.utime(path, (0, OLD_S))
    return version


def task(folder: Path, home: str, uuid: str, code: str) -> None:
    path = folder / "spool" / home / f"{uuid}-1-worker-0" / "task.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"uuid": uuid, "code": code}))


def test_what_a_task_of_any_home_needs_stays(folder: Path) -> None:
    needed, unused = old_code(folder, "needed"), old_code(folder, "unused")
    data = {
        uuid: old_data(folder, name, uuid)
        for name, uuid in (("a", OURS), ("b", THEIRS), ("c", OVER))
    }
    task(folder, "another", THEIRS, needed)
    shelf = Shelf(folder, folder / "spool" / "mine")
    assert shelf.collect([OURS], True) == (1, 1, 4 + len("unused"))
    assert Depot(folder / "code").has(unused) and data[OVER].exists()
    assert shelf.collect([OURS], False) == (1, 1, 4 + len("unused"))
    assert Depot(folder / "code").has(needed) and not Depot(folder / "code").has(unused)
    assert [data[uuid].exists() for uuid in (OURS, THEIRS, OVER)] == [True, True, False]
    assert sorted(path.name for path in (folder / "folders" / "jobs").iterdir()) == [OURS, THEIRS]
    assert shelf.collect([OURS], False) == (0, 0, 0)


def test_code_that_a_job_is_about_to_use_stays(folder: Path) -> None:
    digest = old_code(folder, "again")
    shelf = Shelf(folder, folder / "spool")
    assert shelf.has_code(digest)  # the engine asks; the task that names it comes later
    assert shelf.collect([], False)[0] == 0 and shelf.has_code(digest)


def test_whoever_asks_while_gc_is_at_work_gets_the_answer_of_afterwards(folder: Path) -> None:
    digest, depot = old_code(folder, "gone"), Depot(folder / "code")
    found: list[bool] = []
    asking = threading.Thread(target=lambda: found.append(Depot(folder / "code").pin(digest)))
    with depot.locked(exclusive=True):
        asking.start()
        asking.join(0.2)
        assert found == []
        (folder / "code" / "manifests" / digest).unlink()
    asking.join()
    assert found == [False]


def test_gc_tells_what_it_has_freed_in_each_cluster(
    home: Path, tmp_path: Path, folder: Path
) -> None:
    old_code(folder, "unused")
    old_data(folder, "a", OVER)
    clusters = {
        "lab": {"engine": "slurm", "folder": str(folder)},
        "away": {"engine": "slurm", "folder": "/proc/no"},
    }
    work = tmp_path / "work"
    work.mkdir()
    (work / "headway.yaml").write_text(json.dumps({"clusters": clusters}))
    hw = Hw(home, work)
    told = hw("gc", "--dry-run").stdout.decode()
    assert "would remove 0 jobs, 0 B" in told
    assert "cluster lab: would remove 1 code snapshot and 1 fetched folder" in told
    done = hw("gc")
    assert done.returncode == 0, done.stderr.decode()
    assert "cluster lab: removed 1 code snapshot and 1 fetched folder, 10 B" in done.stdout.decode()
    assert done.stdout.decode().count("\n") == 2  # where there was nothing to do, nothing is said
    (row, other) = hw.json("gc")["clusters"]
    assert (
        {row["cluster"], other["cluster"]} == {"lab", "away"}
        and row["bytes"] == 0
        and row["error"] is None
    )
