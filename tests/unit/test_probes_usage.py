"""How the shipper and the sampler meet: who is watched, which streams are given back, and what
samples must not do.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.agent.clock import Clock
from headway.agent.probes.task_usage import Usage
from headway.agent.probes.usage_stream import UsageStream, Words
from headway.agent.ship.events import Closed, Grown
from headway.agent.ship.shipper import Shipper
from headway.agent.ship.tail import Tail
from headway.spool.layout import TaskFile, parse_stream
from headway.spool.stream_names import facts_name, usage_name
from headway.spool.writer import StreamWriter
from headway.wire.identity import process_start

TASK = TaskFile(
    "00000000-0000-4000-8000-000000000000", 1, "worker-0", "/h", monitoring_interval_s=1.0
)


class Rig:
    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.tail = Tail(str(folder), self.clock, {})
        self.facts: list[dict[str, Any]] = []
        self.usage = Usage(TASK, self.tail, self.facts, self.clock, lambda text: None)

    def sample(self) -> float:
        now_s = self.usage.due_s()
        self.usage.step(now_s)
        if self.usage.due_s() < now_s + 0.5:  # that was the question for GPUs
            now_s = self.usage.due_s()
            self.usage.step(now_s)
        return now_s


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.usage.close(0.0)
    rig.tail.close()


def members(rig: Rig) -> dict[int, int]:
    assert rig.usage._sampler is not None
    return {pid: member.rank for pid, member in rig.usage._sampler.forest.members.items()}


def test_ranks_are_those_that_the_shim_has_started(rig: Rig) -> None:
    rig.facts.append({"type": "task_started", "pid": 1})
    rig.facts.append(
        {"type": "process_started", "rank": 5, "pid": os.getpid(), "start": process_start()}
    )
    rig.sample()
    assert members(rig)[os.getpid()] == 5


def test_a_start_time_that_is_not_the_process_s_is_nobody(rig: Rig) -> None:
    """F29: the number was given anew since."""
    rig.facts.append({"type": "process_started", "rank": 5, "pid": os.getpid(), "start": 1})
    rig.sample()
    assert os.getpid() not in members(rig)


def test_a_process_that_signs_a_stream_is_a_rank(rig: Rig, tmp_path: Path) -> None:
    """Ranks of torchrun, and of scripts that were started without us."""
    opening = {
        "kind": "facts",
        "rank": 7,
        "pid": os.getpid(),
        "start": process_start(),
        "segment": None,
    }
    writer = StreamWriter(tmp_path, facts_name(7, os.getpid(), "abc123"), opening)
    rig.tail.look(0.0, names=True)
    rig.sample()
    writer.close()
    assert members(rig)[os.getpid()] == 7


def test_a_stream_that_goes_on_elsewhere_is_closed_and_the_new_one_is_not(
    rig: Rig, tmp_path: Path
) -> None:
    """So that the server's acknowledgement removes it, and a month of usage never fills the spool."""
    rig.usage._stream = UsageStream(str(tmp_path), bytes_max=2000)
    seen: list[str] = []
    for _ in range(12):
        now_s = rig.sample()
        events = rig.tail.look(now_s, names=True)
        seen += [event.stream for event in events if isinstance(event, Closed)]
    assert len(seen) >= 2
    current = rig.usage._stream.name
    assert current not in seen
    assert all(name.startswith(f"usage-{os.getpid()}-") for name in seen)
    for name in seen:
        rig.tail.forget(name)
    assert rig.tail.left.isdisjoint(seen)


def test_a_probe_that_fails_ends_sampling_and_nothing_else(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    rig.usage._say = said.append
    monkeypatch.setattr(
        "headway.agent.probes.process_tree.Forest.lines", lambda self: {}["no such thing"]
    )
    rig.sample()
    assert said == ["usage is no longer sampled: KeyError: 'no such thing'"]
    assert rig.usage.due_s() == float("inf")
    rig.usage.step(1e9)
    assert len(said) == 1


@pytest.mark.parametrize("value", [float("nan"), "x" * (2 << 20)])
def test_a_fact_that_nobody_could_read_is_not_written(tmp_path: Path, value: object) -> None:
    stream = UsageStream(str(tmp_path))
    assert not stream.write({"type": "usage", "value": value})
    assert list(tmp_path.iterdir()) == []
    assert stream.write({"type": "usage", "value": 1})
    stream.close()


def test_the_words_of_a_line_are_those_of_json_whether_it_is_known_or_new() -> None:
    still, words = {"rank": 0, "pid": 7, "name": 'a "b" \u00e9', "rss_bytes": None}, Words()
    facts: list[dict[str, Any]] = [
        {
            "type": "usage",
            "level": 0,
            "processes": [still, {"rank": 0, "pid": 8, "cpu_percent": number}],
            "gpus": [],
        }
        for number in (1.5, 2.5)
    ]
    facts += [
        {**facts[0], "processes": [still, still]},
        {**facts[0], "processes": []},
        {**facts[0], "level": 1},
    ]
    assert [json.loads(words.of(fact)) for fact in facts] == facts
    with pytest.raises(ValueError, match="JSON compliant"):
        words.of({"type": "usage", "processes": [{"cpu_percent": float("nan")}]})


def test_streams_of_usage_may_be_dropped_and_are_not_synced(rig: Rig) -> None:
    now_s = rig.sample()
    grown = [event for event in rig.tail.look(now_s, names=True) if isinstance(event, Grown)]
    assert grown
    assert all(event.bulk and event.whole for event in grown)
    assert rig.tail.unsynced() == []


def test_a_name_of_a_usage_stream_is_read_as_it_is_written() -> None:
    stream = parse_stream(usage_name(123, "00ff00"))
    assert stream is not None
    assert (stream.role, stream.pid, stream.rand, stream.rank) == ("usage", 123, "00ff00", None)
    assert parse_stream("usage-0-123-00ff00") is None
    assert parse_stream("usage-123-00ff00.1") is None


def test_samples_do_not_make_a_quiet_task_look_busy(tmp_path: Path) -> None:
    """Else the shipper would look for output more often, for as long as it samples."""
    shipper = Shipper(str(tmp_path), TASK)
    shipper._sample(shipper._begun_s + 1)
    assert shipper._usage is not None
    shipper._look(1000.0, names=True)
    quiet_s = shipper._active_s
    shipper._usage._write({"type": "usage"})
    shipper._look(2000.0, names=True)
    assert [name for name in shipper.tail.streams if name.startswith("usage-")]
    assert shipper._active_s == quiet_s
    (tmp_path / "stdout-0").write_text("something")
    shipper._look(3000.0, names=True)
    assert shipper._active_s == 3000.0
    shipper._close()


def test_without_an_interval_no_probe_is_made(tmp_path: Path) -> None:
    task = TaskFile("00000000-0000-4000-8000-000000000000", 1, "worker-0", "/h")
    shipper = Shipper(str(tmp_path), task)
    shipper._sample(shipper._begun_s + 1)
    assert shipper._usage is None
    shipper._close()


def test_a_task_that_has_only_started_does_not_pay_for_probes(tmp_path: Path) -> None:
    shipper = Shipper(str(tmp_path), TASK)
    shipper._sample(shipper._begun_s)
    assert shipper._usage is None
    shipper._sample(shipper._begun_s + 1)
    assert shipper._usage is not None
    shipper._close()
