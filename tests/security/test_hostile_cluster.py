"""A cluster that is not what it was: schedulers that print anything, and a login node that answers
with what it likes. Nothing follows from it, nothing is written where it says, nobody waits for ever.
"""

import random
import re
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headway.engines import bounded_run
from headway.engines.protocol import EngineId, Given
from headway.engines.slurm import parse
from headway.engines.slurm.commands import Commands
from headway.engines.slurm.engine import SlurmEngine
from headway.engines.slurm.place_ssh import Far
from headway.engines.ssh.relay_client import Relay
from headway.home.paths import Paths
from headway.model.errors import DamagedError, HeadwayError, UnreachableError
from headway.model.job import Job, JobSpec, State
from headway.wire import relay_messages, tray

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "slurm"
UUID = "01234567-89ab-cdef-0123-456789abcdef"
OTHER = "11234567-89ab-cdef-0123-456789abcdef"
KEY = f"{UUID}-1"
NODE = "NodeName=n1 CPUAlloc=0 CPUTot=8 Gres=gpu:4 RealMemory=64000 State=IDLE Partitions=gpu\n"
QUEUE = f"17|PENDING|n1|n1|N/A|N/A|17|headway:{KEY}|Resources\n"
RECORD = (
    "JobId=17 JobName=x JobState=COMPLETED Reason=None ExitCode=0:0 NodeList=n[1-2] StartTime=2026-01-01T00:00:00 "
    f"Comment=headway:{KEY} TRES=cpu=2,mem=200M,node=2 NumNodes=2-2 NumCPUs=2 TimeLimit=01:00:00 Partition=gpu\n"
)
ACCOUNT = f"17|COMPLETED|0:0|n[1-2]|2026-01-01T00:00:00|None|job-7f3c2|headway:{KEY}\n"
HOSTILE = [
    "\0", "\x1b]0;x\x07", "\u2028", "\x85", "\x1c", "|", "||||||||", "²", "٣", "9" * 5000, "n[1-999999999999]",
    "n[" + "1-9," * 50 + "1]", "=", " ", "\n", "\r", "(null)", "-1", "9999-99-99T99:99:99", "inf", "nan", "1e999",
    "JobState=COMPLETED ", "gpu:" + "9" * 5000, " State= ", "NodeName= ", "9" * 400 + "-00:00:00", "0" * 4299 + "-1",
    "MinJobAge = " + "9" * 5000,
]  # fmt: skip


class Liar(Commands):
    """Slurm's commands, whose answers are what they were once, and then something is done to them."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        recorded = [path.read_text(errors="replace") for path in GOLDEN.rglob("*.txt")]
        self._rng, self._texts = rng, [*recorded, *[NODE, QUEUE, RECORD, ACCOUNT] * 5]
        self.lies = False

    def run(self, argv: Sequence[str], text: str | None = None, timeout_s: float = 30.0) -> str:
        if not self.lies:
            return {"scontrol": NODE, "squeue": "", "sbatch": "17\n"}.get(argv[0], "")
        said = self._rng.choice(self._texts)
        for _ in range(self._rng.randint(0, 4)):
            at = self._rng.randrange(len(said) + 1)
            values = list(re.finditer(r"=(\S*)", said))
            if values and self._rng.random() < 0.4:
                value = self._rng.choice(values)
                said = said[: value.start(1)] + self._rng.choice(HOSTILE) + said[value.end(1) :]
            else:
                said = said[:at] + self._rng.choice([*HOSTILE, ""]) + said[at:]
        return said[: self._rng.randrange(len(said) + 1)] if self._rng.random() < 0.2 else said


@pytest.mark.parametrize("seed", range(60))
def test_whatever_slurm_prints_costs_no_more_than_an_error_of_ours(
    tmp_path: Path, seed: int
) -> None:
    commands, now_s = Liar(random.Random(seed)), [1000.0]
    settings: dict[str, Any] = {"spool_bytes_max": 1 << 30}
    engine = SlurmEngine(
        "lab", Paths(tmp_path), settings.__getitem__, {"partition": "gpu"}, commands=commands,
        clock_s=lambda: now_s[0],
    )  # fmt: skip
    spec = JobSpec(command=["true"], cwd="/", name="job", processes=2)
    job = Job(1, "job-7f3c2", UUID, spec, State.WAITING, 0, 0)
    plan = engine.plan(job)
    given = Given({}, {task.name: "id.secret" for task in plan.tasks})
    ours = engine.submit(plan, KEY, given)
    commands.lies = True
    for ask in (
        lambda: engine.observe([ours, EngineId("17_3")]), lambda: engine.explain(ours), engine.capacity_now,
        engine.queue_words, lambda: engine.cancel(ours), lambda: engine.plan(job),
        lambda: engine.submit(plan, KEY, given), lambda: engine.salvage(ours), engine.tasks,
        lambda: engine.discard(ours),
    ):  # fmt: skip
        now_s[0] += 100.0
        try:
            ask()
        except HeadwayError:
            continue


def test_a_list_of_more_nodes_than_there_can_be_is_kept_whole() -> None:
    assert parse.expand_hosts("n[1-999999999999]") == ["n[1-999999999999]"]
    assert parse.expand_hosts("n[1-9,1-99999]") == ["n[1-9,1-99999]"]
    assert len(parse.expand_hosts("n[1-5000]")) == 5000


@pytest.mark.parametrize("cut", ["\u2028", "\x85", "\x1c", "\x0b", "\r"])
def test_a_name_with_what_looks_like_the_end_of_a_line_forges_no_job(cut: str) -> None:
    forged = f"18|FAILED|1:0|n1|N/A|None|x{cut}17|COMPLETED|0:0|n1|N/A|None|job|headway:{KEY}\n"
    assert "17" not in parse.read_sacct(forged)
    assert "17" not in parse.read_squeue(
        f"18|RUNNING|n1|n1|N/A|N/A|18|{cut}17|COMPLETED|n1|n1|N/A|N/A|17|c|r\n"
    )


def test_an_answer_about_another_job_is_not_taken_for_ours(tmp_path: Path) -> None:
    class Mixed(Commands):
        def run(self, argv: Sequence[str], text: str | None = None, timeout_s: float = 30.0) -> str:
            if argv[0] == "squeue":
                return f"17|COMPLETED|n1|n1|N/A|N/A|17|headway:{KEY}|None\n"
            if argv[:3] == ["scontrol", "show", "job"]:
                return "JobId=18 JobName=other JobState=FAILED ExitCode=9:0\n"
            return "17\n" if argv[0] == "sbatch" else NODE

    settings: dict[str, Any] = {"spool_bytes_max": 1 << 30}
    engine = SlurmEngine("lab", Paths(tmp_path), settings.__getitem__, {}, commands=Mixed())
    spec = JobSpec(command=["true"], cwd="/", name="job")
    plan = engine.plan(Job(1, "job-7f3c2", UUID, spec, State.WAITING, 0, 0))
    ours = engine.submit(plan, KEY, Given({}, {"worker-0": "id.secret"}))
    assert engine.observe([ours])[ours].state == "unknown"


def test_a_program_that_prints_without_end_is_ended_and_fills_no_memory() -> None:
    with pytest.raises(bounded_run.TooMuchError):
        bounded_run.run(["yes"], timeout_s=60.0, bytes_max=1 << 20)


def test_a_program_that_leaves_a_child_with_its_output_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(bounded_run.subprocess.TimeoutExpired):
        bounded_run.run(["sh", "-c", "sleep 600 & echo done"], timeout_s=0.5)


# -- a login node


HELLO = {
    "python": "/usr/bin/python3", "folder": "/f", "spool": "/f/spool/x", "tray": "/f/trays/x", "zip": "/f/z",
    "home": "/home/u", "pid": 4, "uid": 1000,
}  # fmt: skip
RELAY = """
import hashlib, re, sys
sys.path.insert(0, {src!r})
from headway.wire import relay_messages as m
nonce = re.search(r"(?<![0-9a-f])[0-9a-f]{{32}}(?![0-9a-f])", sys.argv[-1])[0]
out = sys.stdout.buffer
out.write(("\\n" + m.mark_of(nonce) + " ready\\n").encode())
out.write(m.encode({{"id": 0, "value": {hello!r}}}))
out.flush()
while (got := m.receive(sys.stdin.buffer.raw.read)) is not None:
    for answer in {answers!r}:
        out.write(m.encode(answer if "id" in answer else {{**answer, "id": got[0]["id"]}}))
    out.flush()
"""


def _relay(tmp_path: Path, answers: list[dict[str, Any]], hello: Any = HELLO) -> Relay:
    source = str(Path(relay_messages.__file__).resolve().parents[2])
    script = tmp_path / "relay.py"
    script.write_text(RELAY.format(src=source, hello=hello, answers=answers))
    return Relay("lab", "~/.headway", "home1", argv=lambda _: [sys.executable, str(script)])


@pytest.mark.parametrize("hello", [None, [], {"python": 3}, {**HELLO, "pid": "x"}, "text"])
def test_a_relay_that_does_not_say_who_it_is_is_not_used(tmp_path: Path, hello: Any) -> None:
    relay = _relay(tmp_path, [], hello)
    with pytest.raises((DamagedError, UnreachableError)):
        relay.call("run", argv=["true"], limit_s=1.0)
    relay.close()


@pytest.mark.parametrize(
    "answers",
    [
        [
            {"id": [1]},
            {"id": {"a": 1}},
            {"id": "1"},
            {"id": None},
            {"id": 99999},
            {"value": "good"},
        ],
        [{"value": "good"}, {"value": "the same once more"}],
    ],
)
def test_answers_to_no_question_are_passed_over(
    tmp_path: Path, answers: list[dict[str, Any]]
) -> None:
    relay = _relay(tmp_path, answers)
    assert relay.call("run", argv=["true"], limit_s=1.0)[0] == "good"
    assert relay.call("run", argv=["true"], limit_s=1.0)[0] == "good"
    relay.close()


@pytest.mark.parametrize(
    "answer", [{"error": ["x"], "errno": "5"}, {"error": {}, "code": []}, {"error": "x", "code": 7}]
)
def test_an_error_of_any_shape_is_told_as_an_error(tmp_path: Path, answer: dict[str, Any]) -> None:
    relay = _relay(tmp_path, [answer])
    with pytest.raises((HeadwayError, OSError)):
        relay.call("run", argv=["true"], limit_s=1.0)
    relay.close()


class Answers:
    """In the place of a relay: one answer to every question."""

    host, folder, is_used = "lab", "~/.headway", True

    def __init__(self, value: Any) -> None:
        self.value = value

    def hello(self) -> dict[str, Any]:
        return HELLO

    def call(self, do: str, body: bytes = b"", **_: Any) -> tuple[Any, bytes]:
        return self.value, b"x" * 64


@pytest.mark.parametrize(
    "value",
    [None, 7, "text", [], {}, [[]], [[1]], {"a": 1}, {KEY: 7}, {KEY: {"t": [1]}}, {KEY: {"t": "x" * 15}}, [None, 3],
     {"code": "x"}, {"path": 7}],
)  # fmt: skip
def test_answers_of_any_shape_end_in_our_own_errors(tmp_path: Path, value: Any) -> None:
    far = Far(Paths(tmp_path), {"host": "lab"}, Answers(value))  # type: ignore[arg-type]
    shelf, box = far.shelf, far.tray
    name = tray.name_of(f"{KEY}-worker-0", 1, 1)
    for ask in (
        lambda: far.commands.run(["squeue"]), shelf.tasks, lambda: shelf.look([KEY], True),
        lambda: shelf.adopt(["x"], ["y"]), shelf.ids, lambda: shelf.id_of(KEY), lambda: shelf.missing(["d"]),
        shelf.arrays, shelf.unfinished, lambda: shelf.collect([], True), lambda: shelf.outputs("job-1"),
        box.waiting, lambda: box.read(name), box.leftovers,
    ):  # fmt: skip
        try:
            ask()
        except HeadwayError:
            continue


class Writes(Answers):
    """A login node that wants its files elsewhere."""

    def __init__(self, job: str, path: str = "stolen", uuid: str = UUID, size: int = 64) -> None:
        super().__init__(None)
        self._answers: dict[str, Any] = {"unfinished": {uuid: job}, "outputs": [[path, size, 1]]}
        self.asked = threading.Event()

    def call(self, do: str, body: bytes = b"", **head: Any) -> tuple[Any, bytes]:
        if head.get("method") == "unfinished":
            self.asked.set()
        return self._answers.get(head.get("method", "")), b"x" * 64


def _fetched(tmp_path: Path, relay: Writes) -> list[str]:
    """What lies below the home, but for notes, after the outputs were fetched."""
    far = Far(Paths(tmp_path / "home"), {"host": "lab"}, relay)  # type: ignore[arg-type]
    far._fetch.expect(UUID, "job-7f3c2")
    far.finish(KEY)
    thread = far._fetch._thread
    assert thread is not None and relay.asked.wait(10.0)
    thread.join(10.0)
    found = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    return sorted(path for path in found if "clusters" not in path)


def test_outputs_go_into_the_folder_of_their_job(tmp_path: Path) -> None:
    assert _fetched(tmp_path, Writes("job-7f3c2")) == ["home/output/job-7f3c2/stolen"]


@pytest.mark.parametrize(
    "relay",
    [Writes("../../outside"), Writes(".."), Writes("/tmp/outside"), Writes("a/b"), Writes("job-00000"),
     Writes("job-7f3c2", "../x"), Writes("job-7f3c2", "/x"), Writes("job-7f3c2", "a\0b"), Writes("job-7f3c2", "a//b"),
     Writes("job-7f3c2", size=-1), Writes("job-7f3c2", size=2**70), Writes("x", uuid="../../x")],
)  # fmt: skip
def test_outputs_that_a_login_node_names_do_not_leave_the_folder_of_their_job(
    tmp_path: Path, relay: Writes
) -> None:
    assert _fetched(tmp_path, relay) == []


def test_outputs_of_another_job_of_this_home_are_not_touched(tmp_path: Path) -> None:
    mine = tmp_path / "home" / "output" / "mine-1"
    mine.mkdir(parents=True)
    (mine / "model").write_text("good")
    assert _fetched(tmp_path, Writes("mine-1", "model", OTHER)) == ["home/output/mine-1/model"]
    assert (mine / "model").read_text() == "good"
