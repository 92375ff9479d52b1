"""Metrics as event files for TensorBoard, and the options around it."""

from pathlib import Path
from typing import Any

import pytest

from headway.model.errors import UsageError
from headway.views.cli.commands import COMMANDS
from headway.views.cli.options import Parser
from headway.views.plot.event_folder import EventFolder
from headway.wire import tfevents


def entry(rank: int = 0, attempt: int = 1, count: int = 2, last: Any = 0.5) -> dict[str, Any]:
    times = [f"2026-11-18T00:00:{second:02d}.000000Z" for second in range(count)]
    values = [1.0] * (count - 1) + [last]
    return {
        "rank": rank,
        "attempt": attempt,
        "step": list(range(count)),
        "time": times,
        "value": values,
    }


def files(top: Path) -> dict[str, int]:
    """Records by folder, the first one left out."""
    return {
        str(path.parent.relative_to(top)): len(tfevents.read_records(path.read_bytes()).spans) - 1
        for path in sorted(top.rglob("events.out.*"))
    }


def test_each_rank_has_a_folder_and_nothing_is_written_twice(tmp_path: Path) -> None:
    events = EventFolder(tmp_path)
    series = {"loss": [entry(), entry(rank=1), entry(attempt=2)], "acc": [entry()]}
    assert events.add("job-aaaaa", series) == 8
    expected = {"job-aaaaa": 7, "job-aaaaa/rank1": 2}  # with the mark of a restart
    assert files(tmp_path) == expected
    assert events.add("job-aaaaa", series) == 0
    assert events.add("job-aaaaa", {"loss": [entry(count=3)]}) == 1
    assert files(tmp_path) == expected | {"job-aaaaa": 8}


def test_tensorboard_itself_forgets_the_steps_that_a_further_attempt_does_again(
    tmp_path: Path,
) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first = entry(count=6, last=9.0)
    again = {**entry(attempt=2, count=3), "step": [4, 5, 6], "value": [0.4, 0.5, 0.6]}
    again["time"] = [f"2026-11-18T01:00:{second:02d}.000000Z" for second in range(3)]
    EventFolder(tmp_path).add("job-aaaaa", {"loss": [first, again]})
    read = EventAccumulator(str(tmp_path / "job-aaaaa"))
    read.Reload()
    found = {one.step: round(one.value, 3) for one in read.Scalars("loss")}
    assert found == {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 0.4, 5: 0.5, 6: 0.6}


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", 1e300, -1e300, 0])
def test_every_number_can_be_written(tmp_path: Path, value: Any) -> None:
    assert EventFolder(tmp_path).add("job-aaaaa", {"loss": [entry(last=value)]}) == 2


def parsed(*words: str) -> dict[str, Any]:
    return Parser(COMMANDS).parse(list(words)).values


def test_words_of_other_systems_are_understood() -> None:
    found = parsed(
        "tensorboard",
        "--experiment_name",
        "e",
        "--filters",
        "Running,Completed",
        "--run_ids",
        "a,b",
    )
    assert found == {"experiment": "e", "status": ["running", "succeeded"], "run_ids": [["a", "b"]]}
    with pytest.raises(UsageError):
        parsed("tensorboard", "--filters", "Sleeping")


def test_tensorboard_is_a_flag_that_still_takes_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    assert parsed("run", "--tensorboard", "python", "x.py") == {"tensorboard": True}
    assert parsed("run", "--tensorboard=True", "python", "x.py") == {"tensorboard": True}
    assert parsed("run", "--tensorboard=False", "python", "x.py") == {"tensorboard": False}
    assert parsed("run", "--tensorboard=new", "python", "x.py") == {"tensorboard": "new"}
    assert parsed("run", "--tensorboard", "logs", "python", "x.py") == {"tensorboard": "logs"}
    assert parsed("run", "--tensorboard-dir", "new", "python", "x.py") == {"tensorboard_dir": "new"}
