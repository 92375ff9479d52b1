"""Ranks of launchers inside a task, by the environment of their processes."""

from pathlib import Path

from headway.agent.probes.launched_rank import LOOKS, Launched, LaunchedRanks, launched

LAUNCHER, FIRST, SECOND, WORKER = 10, 11, 12, 13
PARENTS = {LAUNCHER: 1, FIRST: LAUNCHER, SECOND: LAUNCHER, WORKER: SECOND}


def _environ(proc: Path, pid: int, **variables: str) -> None:
    (proc / str(pid)).mkdir(exist_ok=True)
    rows = [f"{name}={value}" for name, value in variables.items()]
    (proc / str(pid) / "environ").write_bytes("\0".join(["HOME=/", *rows, ""]).encode())


def _torchrun(proc: Path) -> LaunchedRanks:
    _environ(proc, LAUNCHER)
    _environ(proc, FIRST, RANK="0", LOCAL_RANK="0", WORLD_SIZE="2")
    for pid in (SECOND, WORKER):
        _environ(proc, pid, RANK="1", LOCAL_RANK="1", WORLD_SIZE="2")
    found = LaunchedRanks(str(proc))
    for pid in PARENTS:
        found.add(pid)
    return found


def test_children_of_a_launcher_are_ranks_and_their_workers_are_not(tmp_path: Path) -> None:
    found = _torchrun(tmp_path)
    assert found.look(PARENTS) == [(FIRST, Launched(0, 0, 2)), (SECOND, Launched(1, 1, 2))]
    assert found.look(PARENTS) == []


def test_a_process_that_was_seen_before_its_exec_is_looked_at_again(tmp_path: Path) -> None:
    found = _torchrun(tmp_path)
    _environ(tmp_path, SECOND)
    assert [pid for pid, _ in found.look(PARENTS)] == [FIRST, WORKER]  # the nearest that is known
    found = _torchrun(tmp_path)
    _environ(tmp_path, FIRST)
    assert [pid for pid, _ in found.look(PARENTS)] == [SECOND]
    _environ(tmp_path, FIRST, RANK="0", WORLD_SIZE="2")
    assert LOOKS > 1 and found.look(PARENTS) == [(FIRST, Launched(0, 0, 2))]


def test_one_alone_and_words_that_are_no_numbers_are_no_ranks(tmp_path: Path) -> None:
    for pid, (rank, size) in enumerate([("0", "1"), ("x", "2"), ("5", "2"), ("0", "")], start=20):
        _environ(tmp_path, pid, RANK=rank, WORLD_SIZE=size)
        assert launched(str(tmp_path), pid) is None
    _environ(tmp_path, 30, OMPI_COMM_WORLD_RANK="3", OMPI_COMM_WORLD_SIZE="4")
    assert launched(str(tmp_path), 30) == Launched(3, 3, 4)
    assert launched(str(tmp_path), 99) is None
