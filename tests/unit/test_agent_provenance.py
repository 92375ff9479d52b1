"""What a job was: also where the process that looks after git does not come back with an answer."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from headway.agent.observe import provenance
from headway.agent.observe.provenance import About, Collector, Inquiry
from headway.spool.layout import TaskFile
from tests.waiting import wait_until


def about(cwd: Path) -> About:
    return About(
        ["python", "train.py"],
        str(cwd),
        {"python": "3.11.7", "executable": "/usr/bin/python3", "prefix": "/x"},
    )


class Asked:
    """An inquiry of which only the collector is real."""

    def __init__(self, cwd: Path) -> None:
        self.facts: list[dict[str, Any]] = []
        self.said: list[str] = []
        task = TaskFile.__new__(TaskFile)
        self.inquiry = Inquiry(task, {}, list, self.facts.append, self.said.append)
        self.inquiry._start(about(cwd), 0.0)

    @property
    def collector(self) -> Collector:
        assert self.inquiry._collector is not None
        return self.inquiry._collector

    def answer(self, now_s: float = 1.0) -> dict[str, Any]:
        wait_until(lambda: self.inquiry.step(now_s, 0.0, None, ended=True))
        (fact,) = self.facts
        return fact


def test_one_that_fails_says_why_and_the_rest_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: About) -> dict[str, Any]:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(provenance, "collect", broken)
    asked = Asked(tmp_path)
    fact = asked.answer()
    assert (fact["type"], fact["git"], fact["python"]) == ("provenance", None, "3.11.7")
    assert asked.said == ["the state of the code is not known: RuntimeError: no such luck"]


@pytest.mark.parametrize("how", ["killed", "late"])
def test_one_that_does_not_answer_costs_the_state_of_the_code_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(provenance, "collect", lambda _: signal.pause())
    asked = Asked(tmp_path)
    pid = asked.collector.pid
    if how == "killed":
        os.kill(pid, signal.SIGKILL)
    fact = asked.answer(asked.collector.deadline_s + 1 if how == "late" else 1.0)
    assert fact["git"] is None and fact["command"] == ["python", "train.py"]
    assert asked.said == ["the state of the code is not known: its process ended, or took too long"]
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # it is ended and reaped
