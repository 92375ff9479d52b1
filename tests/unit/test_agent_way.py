"""`agent/transport/failover.py`, `agent/transport/tray_client.py`: a request gets through on the
best way that works; none is lost between two.
"""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from headway.agent.transport import failover
from headway.agent.transport.failover import FOLDER, NETWORK, SOCKET, Post, Ways
from headway.agent.transport.http import Answer, Channel, TaskName, open_channels
from headway.agent.transport.tray_client import TrayChannel
from headway.model.limits import (
    TRAY_ANSWER_S,
    TRAY_SMALL_BYTES,
    WAY_AGAIN_FIRST_S,
    WAY_AGAIN_MAX_S,
    WAY_AGAIN_NEVER_MAX_S,
)
from headway.spool.files import OS_FILES
from headway.spool.layout import TaskFile
from headway.wire import tray

UUID = "01234567-89ab-cdef-0123-456789abcdef"
OK = Answer(200, b"{}")
AWAY = Answer(None, b"", "away")


class Scripted(Channel):
    """A way that answers as it is told: at once, or (None) when the test says so."""

    def __init__(self, answers: list[Answer | None]) -> None:
        super().__init__("")
        self.answers, self.got = answers, []  # type: ignore[var-annotated]

    def start(
        self,
        path: str,
        body: Sequence[bytes | memoryview],
        now_s: float,
        timeout_s: float,
        kind: str = "json",
    ) -> Answer | None:
        self.got.append((path, b"".join(body)))
        return self.answers.pop(0)

    def step(self, now_s: float) -> Answer | None:
        return self.answers.pop(0)

    def close(self) -> None:
        return


class Rig:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dir, self.said = str(folder), []  # type: ignore[var-annotated]
        self.channels: dict[str, Scripted] = {
            name: Scripted([]) for name in (SOCKET, NETWORK, FOLDER)
        }
        self.opened: list[tuple[str, str]] = []
        self.task = TaskFile(
            UUID, 1, "worker-0", "/h", socket="/s", token="a.b", tls={"pin": "1"}, tray="/t"
        )
        self.task.save(self.dir)

        def open_(name: str, task: TaskFile) -> Channel:
            self.opened.append((name, task.token))
            return self.channels[name]

        monkeypatch.setattr(failover, "_open", open_)
        self.ways = Ways(self.dir, self.task, self.said.append, OS_FILES)
        self.data, self.asking = Post(self.ways, probing=False), Post(self.ways, probing=True)

    def script(self, **answers: list[Answer | None]) -> None:
        for name, channel in zip(
            ("socket", "network", "folder"), self.channels.values(), strict=True
        ):
            channel.answers = answers.get(name, [])


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(tmp_path, monkeypatch)


def test_a_task_with_one_way_has_a_plain_channel(tmp_path: Path) -> None:
    task = TaskFile(UUID, 1, "worker-0", "/h", socket="/s")
    assert [type(channel) for channel in open_channels(str(tmp_path), task, print, OS_FILES)] == [
        Channel,
        Channel,
    ]


def test_the_same_request_goes_out_on_the_next_way_at_once(rig: Rig) -> None:
    rig.script(socket=[AWAY], network=[None, AWAY], folder=[None, OK])
    assert rig.data.start("/agent/ingest", [b"ab", b"c"], 0.0, 30.0) is None
    assert rig.data.step(1.0) is None  # the network was tried, and the folder has it now
    assert rig.data.busy
    assert rig.data.step(2.0) == OK
    assert not rig.data.busy
    assert [channel.got for channel in rig.channels.values()] == [[("/agent/ingest", b"abc")]] * 3
    assert rig.said == ["the server is reached through a folder now: away"]
    assert rig.data.trouble == "away; away"


def test_data_stays_on_the_way_that_works_and_questions_try_the_better_ones_when_it_is_time(
    rig: Rig,
) -> None:
    rig.script(socket=[AWAY], network=[AWAY], folder=[OK])
    assert rig.data.start("/agent/ingest", [b""], 0.0, 30.0) == OK
    rig.script(folder=[OK])
    assert rig.asking.start("/agent/poll", [b""], WAY_AGAIN_FIRST_S - 1, 30.0) == OK  # not yet
    rig.script(folder=[OK])
    assert rig.data.start("/agent/ingest", [b""], WAY_AGAIN_FIRST_S, 30.0) == OK  # never with data
    rig.script(socket=[AWAY], network=[OK])
    assert rig.asking.start("/agent/poll", [b""], WAY_AGAIN_FIRST_S, 30.0) == OK
    rig.script(network=[OK])
    assert rig.data.start("/agent/ingest", [b""], WAY_AGAIN_FIRST_S, 30.0) == OK
    assert rig.said[-1] == "the server is reached through the network now: it works again"
    rig.script(network=[OK])  # the socket has failed twice: it waits longer now
    assert rig.asking.start("/agent/poll", [b""], 2 * WAY_AGAIN_FIRST_S, 30.0) == OK


@pytest.mark.parametrize(
    ("worked", "longest_s"), [(True, WAY_AGAIN_MAX_S), (False, WAY_AGAIN_NEVER_MAX_S)]
)
def test_a_way_that_has_never_worked_is_tried_less_often(
    rig: Rig, worked: bool, longest_s: float
) -> None:
    if worked:
        rig.script(socket=[OK])
        assert rig.data.start("/agent/ingest", [b""], 0.0, 30.0) == OK
    now_s, pauses = 0.0, []
    for _ in range(12):
        rig.script(socket=[AWAY], network=[OK])
        assert rig.asking.start("/agent/poll", [b""], now_s, 30.0) == OK
        pauses.append(rig.ways.again_s() - now_s)
        now_s = rig.ways.again_s()
    assert pauses[0] == WAY_AGAIN_FIRST_S
    assert pauses[-1] == longest_s


def test_no_way_at_all_is_told_with_the_last_reason_and_every_way_was_tried(rig: Rig) -> None:
    rig.script(socket=[AWAY], network=[AWAY], folder=[Answer(None, b"", "full disk")])
    answer = rig.data.start("/agent/ingest", [b""], 0.0, 30.0)
    assert answer == Answer(None, b"", "full disk")
    assert not rig.data.busy
    rig.ways.at = 2
    rig.script(socket=[OK], network=[AWAY], folder=[AWAY])
    # better ones too, when nothing else is left
    assert rig.data.start("/agent/ingest", [b""], 0.0, 30.0) == OK


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_token_that_is_refused_is_read_again_and_the_other_ways_go_on(
    rig: Rig, status: int
) -> None:
    no = Answer(status, b"{}")
    rig.script(socket=[AWAY], network=[no], folder=[OK])
    assert rig.data.start("/agent/ingest", [b""], 0.0, 30.0) == OK
    assert f"({status})" in rig.data.trouble or "does not know this task" in rig.data.trouble
    rig.script(socket=[AWAY], network=[no], folder=[no])
    answer = rig.asking.start("/agent/poll", [b""], 100.0, 30.0)
    assert answer == no  # all of them refuse it: that is told as it is


def test_a_new_token_in_the_task_file_is_used_at_once(rig: Rig) -> None:
    TaskFile(**{**rig.task.__dict__, "token": "new.secret"}).save(rig.dir)
    rig.script(socket=[Answer(401), OK])
    assert rig.data.start("/agent/ingest", [b"x"], 0.0, 30.0) == OK
    assert rig.opened == [(SOCKET, "a.b"), (SOCKET, "new.secret")]
    assert rig.said == []  # it never left its way


def test_an_answer_that_is_no_yes_but_the_servers_own_does_not_change_the_way(rig: Rig) -> None:
    for status in (400, 413, 503):
        rig.script(socket=[Answer(status)])
        assert rig.data.start("/agent/ingest", [b""], 0.0, 30.0) == Answer(status)
    assert rig.ways.at == 0


# -- the tray


@pytest.fixture
def channel(tmp_path: Path) -> TrayChannel:
    tray.make(str(tmp_path / "tray"))
    return TrayChannel(str(tmp_path / "tray"), TaskName(UUID, 1, "worker-0"))


def test_a_request_through_a_folder_is_answered_there_and_leaves_nothing(
    channel: TrayChannel,
) -> None:
    assert channel.start("/agent/poll", [b"{", b"}"], 0.0, 30.0) is None
    [name] = tray.waiting(channel.path)
    request = tray.read(channel.path, name)
    assert request is not None
    assert (str(request.task), request.path, request.body) == (
        f"{UUID}-1-worker-0",
        "/agent/poll",
        b"{}",
    )
    assert channel.step(1.0) is None
    tray.reply(channel.path, name, 200, b"done")
    assert channel.step(10.0) == Answer(200, b"done")
    assert not channel.busy
    assert [found for _, _, names in os.walk(channel.path) for found in names] == []


def test_a_request_that_nobody_answers_is_taken_back_and_the_next_has_another_name(
    channel: TrayChannel,
) -> None:
    channel.start("/agent/poll", [b"{}"], 0.0, 1.0)
    [first] = tray.waiting(channel.path)
    answer = channel.step(TRAY_ANSWER_S + 1)
    assert answer is not None
    assert answer.status is None
    assert "nobody has answered" in answer.reason
    assert tray.waiting(channel.path) == []
    channel.start("/agent/poll", [b"{}"], 100.0, 1.0)
    assert tray.waiting(channel.path) != [first]
    assert len(tray.waiting(channel.path)) == 1


def test_an_answer_that_is_seen_in_part_is_waited_for(channel: TrayChannel) -> None:
    channel.start("/agent/poll", [b"{}"], 0.0, 30.0)
    [name] = tray.waiting(channel.path)
    tray.reply(channel.path, name, 200, b"done")
    path = Path(channel.path, "in", name)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert channel.step(1.0) is None
    path.write_bytes(whole)
    assert channel.step(10.0) == Answer(200, b"done")


def test_a_folder_that_is_open_to_others_is_not_used(channel: TrayChannel) -> None:
    os.chmod(channel.path, 0o755)
    answer = channel.start("/agent/poll", [b"{}"], 0.0, 30.0)
    assert answer is not None
    assert answer.status is None
    assert tray.waiting(channel.path) == []


def test_the_agent_looks_less_often_for_an_answer_that_does_not_come(channel: TrayChannel) -> None:
    channel.start("/agent/poll", [b"{}"], 0.0, 30.0)
    times = []
    for _ in range(30):
        now_s = channel.due_s
        times.append(now_s)
        assert channel.step(now_s) is None
    pauses = [round(b - a, 6) for a, b in itertools.pairwise(times)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(2.0)


def test_a_small_batch_waits_for_more_the_longer_the_slower_the_server_answers(
    channel: TrayChannel,
) -> None:
    assert channel.start("/agent/ingest", [b"first"], 100.0, 30.0, "batch") is None
    [name] = tray.waiting(channel.path)
    tray.reply(channel.path, name, 200, b"")
    assert channel.step(101.0) == Answer(200, b"")
    assert channel.start("/agent/ingest", [b"second"], 101.0, 30.0, "batch") is None
    assert tray.waiting(channel.path) == []
    assert channel.due_s == 103.0
    assert channel.step(103.0) is None
    [name] = tray.waiting(channel.path)
    request = tray.read(channel.path, name)
    assert request is not None
    assert request.body == b"second"
    channel.close()
    assert channel.start("/agent/ingest", [bytes(TRAY_SMALL_BYTES)], 101.0, 30.0, "batch") is None
    assert len(tray.waiting(channel.path)) == 1  # a large one does not wait
    channel.close()
    assert channel.start("/agent/poll", [b"{}"], 101.0, 30.0) is None
    assert len(tray.waiting(channel.path)) == 1  # nor does a question for commands


def test_no_token_is_in_a_request_as_a_file(tmp_path: Path) -> None:
    tray.make(str(tmp_path / "tray"))
    task = TaskFile(UUID, 1, "worker-0", "/h", token="id.very-secret", tray=str(tmp_path / "tray"))
    data, _ = open_channels(str(tmp_path), task, print, OS_FILES)
    assert data.start("/agent/poll", [json.dumps({"task": 1}).encode()], 0.0, 30.0) is None
    [name] = tray.waiting(task.tray)
    assert b"very-secret" not in Path(task.tray, "out", name).read_bytes()


def test_an_agent_with_one_way_loads_nothing_of_the_others() -> None:
    others = "{'ssl', 'headway.agent.transport.failover', 'headway.wire.tray'}"
    code = f"import sys, headway.agent.ship.shipper; print(*sorted({others} & set(sys.modules)))"
    src = str(Path(failover.__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        cwd="/",
        env={"PYTHONPATH": src},
    )
    assert (done.stdout.strip(), done.returncode) == ("", 0), done.stderr
