"""What 0.1.0 wrote is loaded and served by this version (P12): a home, spools with what was never
sent, a task file, a batch. The files were made once by that version and are never changed.
"""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from headway.home.paths import socket_path
from headway.wire import batch
from tests.driver import Hw
from tests.waiting import wait_until

MADE = Path(__file__).parent / "v0.1.0"
NAMES = ("train", "crash", "plain", "retried", "killed")
# of the past machine and of the moment; a later version may say more or in other words
FREE = {
    "output_dir", "page", "attach", "logs", "cause", "definition", "heard_at", "way", "usage",
    "engine_word",
}  # fmt: skip


def lay_out(name: str, home: Path) -> None:
    """The files of an archive, with the modes of a home."""
    with zipfile.ZipFile(MADE / name) as archive:
        for entry in archive.infolist():
            target = home / entry.filename
            if entry.is_dir():
                target.mkdir(parents=True, exist_ok=True, mode=0o700)
                continue
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            target.write_bytes(archive.read(entry))
            target.chmod(0o600)


def answer(name: str) -> Any:
    return json.loads((MADE / "answers" / f"{name}.json").read_text())


def holds(old: Any, new: Any, where: str = "") -> list[str]:
    """Every value of `old` that `new` does not have, by its path."""
    if isinstance(old, dict):
        if not isinstance(new, dict):
            return [f"{where}: {new!r} in place of an object"]
        found = []
        for key, value in old.items():
            if key in FREE:
                continue
            if key not in new:
                found.append(f"{where}.{key} is gone")
            else:
                found += holds(value, new[key], f"{where}.{key}")
        return found
    if isinstance(old, list):
        if not isinstance(new, list) or len(old) != len(new):
            return [f"{where}: {len(old)} items became {new!r}"]
        return [line for i, one in enumerate(old) for line in holds(one, new[i], f"{where}[{i}]")]
    return [] if old == new else [f"{where}: {old!r} became {new!r}"]


@pytest.fixture
def old(home: Path, tmp_path: Path) -> Hw:
    lay_out("home.zip", home)
    return Hw(home, tmp_path)


def test_a_home_of_0_1_0_is_served_as_it_was(old: Hw) -> None:
    rows = old.json("ls", "--limit", "100")
    assert {row["name"] for row in rows} >= set(NAMES)
    for name in NAMES:
        before = answer(f"q-{name}")
        ref = before["id"]
        assert holds(before, old.json("q", ref)) == [], name
        assert holds(answer(f"metrics-{name}"), old.json("metrics", ref)) == [], name
        assert holds(answer(f"logs-{name}")["lines"], old.json("logs", ref)["lines"]) == [], name


def test_what_agents_of_0_1_0_left_unsent_comes_in(home: Path, tmp_path: Path) -> None:
    """Server and agents were killed while it ran; every point and line of the spool is taken in."""
    lay_out("unsent.zip", home)
    hw = Hw(home, tmp_path)
    spools = sorted((home / "spool").iterdir())
    jobs = []
    for spool in spools:
        task = json.loads((spool / "task.json").read_text())
        jobs.append(task["id"])
        # the home lies elsewhere now, and so does its server's socket
        task |= {"home": str(home), "socket": str(socket_path(home))}
        (spool / "task.json").write_text(json.dumps(task))
    assert len(jobs) == 2
    for job in jobs:
        wait_until(lambda job=job: len(hw.points(job, "loss")) == 60, 60.0, f"all points of {job}")
        assert hw.points(job, "loss") == [60.0 - i for i in range(60)]
        assert hw.json("q", job)["config"] == {"lr": 0.5}
        lines = [
            line["text"] for line in hw.json("logs", job)["lines"] if line["stream"] == "stdout"
        ]
        assert lines == [f"line {i}" for i in range(60)]


def test_a_batch_of_0_1_0_is_read() -> None:
    task, _, parts = batch.decode((MADE / "ingest.bin").read_bytes())
    assert (task.attempt, task.task) == (1, "worker-0")
    assert [(part.stream, part.kind, part.offset) for part in parts] == [
        ("stdout-7", "raw", 0),
        ("metrics-7-1-aaaaaa.0", "records", 0),
    ]
    assert bytes(parts[0].data) == b"late line\n"
