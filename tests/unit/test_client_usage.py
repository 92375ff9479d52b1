"""Checkpoints: labels on the time axis of usage, bounded, and nothing when they are off (22)."""

from pathlib import Path

import pytest

from headway.client import usage_marks as module
from headway.client.usage_marks import Marks, Usage
from tests import streams
from tests.client_bench import Bench


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(
        tmp_path / "spool", environ={"API_TOKEN": "hunter2-hunter2", "RANK": "3", "WORLD_SIZE": "4"}
    )
    monkeypatch.setattr(module, "_marks", [Marks(made.run)])
    return made


def tags(bench: Bench) -> list[list[str]]:
    return [fact["tags"] for fact in streams.facts(bench.folder, "checkpoint")]


def test_a_checkpoint_has_its_words_as_text(bench: Bench) -> None:
    Usage.checkpoint("step", 3)
    Usage.checkpoint()
    Usage.checkpoint("key", "hunter2-hunter2", "x" * 1000)
    assert (
        tags(bench)[:2] == [["step", "3"], []]
        and tags(bench)[2][1] == "********"
        and len(tags(bench)[2][2]) == 128
    )
    assert streams.facts(bench.folder, "checkpoint")[0]["rank"] == 3


def test_between_stop_and_start_a_checkpoint_does_nothing(bench: Bench) -> None:
    Usage.start()
    Usage.stop()
    Usage.stop()
    Usage.checkpoint("no")
    Usage.start()
    Usage.checkpoint("yes")
    assert tags(bench) == [["yes"]]
    assert [fact["open"] for fact in streams.facts(bench.folder, "usage_window")] == [False, True]


def test_a_tag_that_cannot_be_shown_is_said_and_training_goes_on(bench: Bench) -> None:
    """P1."""

    class Bad:
        def __str__(self) -> str:
            raise KeyError

    Usage.checkpoint(Bad())
    Usage.checkpoint("good")
    assert tags(bench) == [["good"]] and len(bench.warned) == 1


def test_checkpoints_are_bounded_and_the_rest_is_counted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKPOINTS_PROCESS_MAX", 5)
    for i in range(12):
        Usage.checkpoint(i)
    bench.run.finish()
    assert len(tags(bench)) == 5 and len(bench.warned) == 1
    assert [gap["records"] for gap in streams.facts(bench.folder, "gap")] == [7]


def test_off_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path / "spool", environ={"HEADWAY_DISABLED": "1"})
    monkeypatch.setattr(module, "_marks", [Marks(bench.run)])
    Usage.start()
    Usage.checkpoint("x")
    assert [path.name for path in bench.folder.iterdir()] == ["task.json"]
