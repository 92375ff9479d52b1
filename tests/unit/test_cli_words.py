"""Verbs of other tools, and columns of `hw ls` that a person asks for."""

from typing import Any

import pytest

from headway.model.errors import UsageError
from headway.model.ids import name_from_command
from headway.views.cli import list_columns, other_words
from headway.views.cli.commands import COMMANDS
from headway.views.cli.options import Parser


@pytest.mark.parametrize(
    "word", ["ps", "squeue", "status", "list", "top", "tail", "show", "failed", "workers"]
)
def test_a_verb_that_only_looks_is_run_as_ours(word: str) -> None:
    parser = Parser(COMMANDS)
    parsed = parser.parse([word])
    assert parsed.command is not None and parsed.command.name == other_words.LOOKING[word][0]
    assert word in parser.said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["kill", "7f3c2"], "hw abort 7f3c2"), (["scancel", "7f3c2"], "hw abort 7f3c2"), (["rm", "a"], "hw delete a"),
        (["sbatch", "job.sh"], "hw submit job.sh"), (["cancel"], "hw abort ID"),
    ],
)  # fmt: skip
def test_a_verb_that_changes_something_is_only_told(words: list[str], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        Parser(COMMANDS).parse(words)
    assert told in caught.value.hint


def test_every_word_leads_to_a_verb_of_ours_and_hides_none() -> None:
    assert {words[0] for words in other_words.LOOKING.values()} <= set(COMMANDS)
    assert not (set(other_words.LOOKING) | set(other_words.CHANGING)) & set(COMMANDS)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python -m pkg.train --lr 1", "train"), ("python -u -m train", "train"), ("python -m pkg.__main__", "pkg"),
        ("python -m torch.distributed.run --nproc 2 fit.py", "fit"), ("python train.py -m pkg.other x", "train"),
    ],
)  # fmt: skip
def test_a_module_gives_the_job_its_name(command: str, name: str) -> None:
    assert name_from_command(command.split()) == name


def jobs() -> list[dict[str, Any]]:
    return [
        {"id": "a", "name": "t", "config": {"lr": 0.1, "seed": 1}, "metrics": {"loss": 2.0}, "command": ["x", "1"]},
        {"id": "b", "name": "t", "config": {"lr": 0.2, "seed": 1}, "metrics": {"loss": "NaN"}, "command": ["x", "2"]},
        {"id": "c", "name": "t", "config": {"lr": 0.3, "seed": 1}, "metrics": {"loss": 1.0}, "command": ["x", "3"]},
    ]  # fmt: skip


def test_only_what_differs_is_shown() -> None:
    assert list_columns.differences(jobs()) == {"a": "lr=0.1", "b": "lr=0.2", "c": "lr=0.3"}
    bare = [{**job, "config": {}} for job in jobs()]
    assert list_columns.differences(bare) == {"a": "1", "b": "2", "c": "3"}


def test_jobs_are_ordered_by_a_metric_or_a_config_key_and_nan_is_last() -> None:
    assert [job["id"] for job in list_columns.ordered(jobs(), "loss")] == ["c", "a", "b"]
    assert [job["id"] for job in list_columns.ordered(jobs(), "-lr")] == ["c", "b", "a"]
    with pytest.raises(UsageError, match="nope"):
        list_columns.ordered(jobs(), "nope")
