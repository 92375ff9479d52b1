"""GPUs against a driver that is built here: two cards, missing values, errors, a hang, a crash
(F44, B34).
"""

import importlib.util
import itertools
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.agent.probes.gpu import Gpus
from headway.agent.probes.sampler import Sampler
from headway.model.limits import (
    GPU_PAUSE_FIRST_S,
    GPU_PAUSE_MAX_S,
    GPU_TIMEOUT_FIRST_S,
    GPU_TIMEOUT_S,
)
from headway.testing import nvml_driver
from tests.needs import missing
from tests.waiting import wait_until

Cards = list[dict[str, Any]]
FIELDS = (
    "index name load_percent memory_bytes memory_total_bytes power_w temperature_c sm_mhz memory_mhz throttle "
    "ecc_corrected ecc_uncorrected holders own"
).split()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if nvml_driver.compiler() is None:
        missing("no C compiler here; type: sudo apt-get install gcc")
    return nvml_driver.build(tmp_path_factory.mktemp("nvml"))


class Rig:
    """A probe with a clock of its own; only the child is real."""

    def __init__(self, library: Path, **env: str) -> None:
        self.said: list[str] = []
        self.now_s = 0.0
        whole = {**os.environ, "HEADWAY_NVML": str(library), "CUDA_VISIBLE_DEVICES": "", **env}
        self.gpus = Gpus(0.0, whole, say=self.said.append)

    def sample(self, tree: tuple[int, ...] = ()) -> Cards | None:
        """Ask, and wait for what comes: an answer, or the end of the child."""
        self.gpus.ask(self.now_s)
        found: list[Cards | None] = []

        def came() -> bool:
            told = len(self.said)
            found[:] = [self.gpus.take(self.now_s, tree)]
            return found[0] is not None or len(self.said) > told or self.gpus._child is None

        wait_until(came, 30.0, "an answer about GPUs")
        return found[0]

    def child_pid(self) -> int:
        assert self.gpus._child is not None
        return self.gpus._child.pid


@pytest.fixture
def rig(library: Path) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(**env: str) -> Rig:
        made.append(Rig(library, **env))
        return made[-1]

    yield make
    for one in made:
        one.gpus.close()


def is_gone(pid: int) -> bool:
    """Also a zombie, and one that was reaped here, is gone."""
    try:
        return b") Z" in Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_two_cards_are_told_with_all_their_values(rig: Callable[..., Rig]) -> None:
    cards = rig(STUB_NVML_PID="77").sample()
    assert cards is not None
    first, second = cards
    assert list(first) == FIELDS
    holders = first.pop("holders")
    assert first == {
        "index": 0, "name": "Stub Card 0", "load_percent": 97, "memory_bytes": 60 << 30,
        "memory_total_bytes": 80 << 30, "power_w": 312.5, "temperature_c": 71, "sm_mhz": 1410, "memory_mhz": 1593,
        "throttle": ["power cap", "hardware thermal"], "ecc_corrected": 12, "ecc_uncorrected": 1, "own": False,
    }  # fmt: skip
    assert len(holders) == 20
    assert holders[0] == {"pid": 77, "bytes": 30 << 30}
    assert holders[1]["bytes"] is None
    assert (second["load_percent"], second["throttle"], second["holders"]) == (7, [], [])
    assert (second["ecc_corrected"], second["ecc_uncorrected"]) == (None, None)


def test_one_child_answers_many_times(rig: Callable[..., Rig]) -> None:
    one = rig()
    assert one.sample()
    pid = one.child_pid()
    for _ in range(5):
        one.now_s += 1
        assert one.sample()
    assert one.child_pid() == pid


@pytest.mark.parametrize(
    ("env", "tree", "own"),
    [
        ({}, (), [False, False]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, (), [False, True]),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, (), [True, True]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-00000001"}, (), [False, True]),
        ({"CUDA_VISIBLE_DEVICES": "-1, garbage,"}, (), [False, False]),
        ({"STUB_NVML_PID": "77"}, (77,), [True, False]),
        ({"STUB_NVML_PID": "77"}, (78,), [False, False]),
    ],
)
def test_a_card_is_the_jobs_own_when_given_or_held(
    rig: Callable[..., Rig], env: dict[str, str], tree: tuple[int, ...], own: list[bool]
) -> None:
    cards = rig(**env).sample(tree)
    assert cards is not None
    assert [card["own"] for card in cards] == own


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        ("nvmlDeviceGetUtilizationRates", ["load_percent"]),
        ("nvmlDeviceGetMemoryInfo", ["memory_bytes", "memory_total_bytes"]),
        ("nvmlDeviceGetPowerUsage", ["power_w"]),
        ("nvmlDeviceGetTemperature", ["temperature_c"]),
        ("nvmlDeviceGetClockInfo", ["sm_mhz", "memory_mhz"]),
        ("nvmlDeviceGetTotalEccErrors", ["ecc_corrected", "ecc_uncorrected"]),
        ("nvmlDeviceGetName", ["name"]),
    ],
)
def test_a_value_that_a_card_does_not_have_is_null_and_the_others_stand(
    rig: Callable[..., Rig], function: str, fields: list[str]
) -> None:
    """B34: [N/A], ERR!, MIG: each is an error code of one function."""
    for code in (3, 15, 999):
        cards = rig(STUB_NVML_FAIL=f"{function}={code}").sample()
        assert cards is not None
        assert [name for name in FIELDS if cards[0][name] is None] == fields


def test_holders_and_reasons_that_cannot_be_told_are_null(rig: Callable[..., Rig]) -> None:
    names = "nvmlDeviceGetComputeRunningProcesses_v3 nvmlDeviceGetGraphicsRunningProcesses_v3 "
    names += "nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetCurrentClocksThrottleReasons"
    cards = rig(STUB_NVML_FAIL=",".join(f"{name}=3" for name in names.split())).sample()
    assert cards is not None
    assert (cards[0]["holders"], cards[0]["throttle"], cards[0]["load_percent"]) == (None, None, 97)


def test_a_card_that_has_fallen_off_the_bus_has_only_its_number(rig: Callable[..., Rig]) -> None:
    cards = rig(STUB_NVML_FAIL="nvmlDeviceGetHandleByIndex_v2=15").sample()
    assert cards is not None
    assert [card["index"] for card in cards] == [0, 1]
    assert {
        value for card in cards for name, value in card.items() if name not in ("index", "own")
    } == {None}


def test_a_driver_without_cards_is_an_empty_list(rig: Callable[..., Rig]) -> None:
    one = rig(STUB_NVML_CARDS="0")
    assert one.sample() == []
    assert one.said == []


@pytest.mark.parametrize("fault", ["nvmlInit_v2=9", "nvmlInit_v2=18", "nvmlDeviceGetCount_v2=999"])
def test_a_broken_driver_is_told_once_and_asked_again_much_later(
    rig: Callable[..., Rig], fault: str
) -> None:
    one = rig(STUB_NVML_FAIL=fault)
    assert one.sample() == []
    assert len(one.said) == 1
    one.now_s += GPU_PAUSE_MAX_S - 1
    one.gpus.ask(one.now_s)
    assert one.gpus._child is None
    one.now_s += 2
    wait_until(lambda: (one.gpus.ask(one.now_s), one.gpus._child)[1], what="another try")
    assert one.sample() == []
    assert len(one.said) == 1


def test_a_missing_library_means_no_gpus(tmp_path: Path) -> None:
    one = Rig(tmp_path / "none.so")
    assert one.sample() == []
    assert "no GPU driver" in one.said[0]
    one.gpus.close()


def test_a_machine_without_a_driver_starts_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.agent.probes.gpu._DEVICES", ())
    gpus = Gpus(0.0, {}, argv=["/nonexistent"])
    gpus.ask(0.0)
    assert gpus.take(0.0) == []
    assert not gpus.is_asked


def test_a_driver_that_hangs_costs_samples_and_is_asked_again(
    rig: Callable[..., Rig], tmp_path: Path
) -> None:
    """F44: timed out, sample missing, agent alive; and back when the driver is."""
    hang = tmp_path / "hang"
    one = rig(STUB_NVML_HANG=str(hang))
    assert one.sample()
    hang.touch()
    pid = one.child_pid()
    for _ in range(int(GPU_TIMEOUT_S)):
        one.now_s += 1
        one.gpus.ask(one.now_s)
        assert one.gpus.take(one.now_s) is None
    one.now_s += 1.1
    assert one.gpus.take(one.now_s) is None
    assert one.said == ["GPU usage is missing: the GPU driver does not answer"]
    wait_until(lambda: is_gone(pid), what="the end of the child that hung")
    one.gpus.ask(one.now_s + GPU_PAUSE_FIRST_S - 1)
    assert one.gpus._child is None
    hang.unlink()
    one.now_s += GPU_PAUSE_FIRST_S + 0.1
    wait_until(lambda: (one.gpus.ask(one.now_s), one.gpus._child)[1], what="another child")
    assert one.sample()


def test_pauses_grow_while_a_driver_keeps_hanging(rig: Callable[..., Rig], tmp_path: Path) -> None:
    """F44: a driver that is gone for good is not asked every few seconds."""
    hang = tmp_path / "hang"
    hang.touch()
    one, starts = rig(STUB_NVML_HANG=str(hang)), []
    for _ in range(4):
        wait_until(lambda: (one.gpus.ask(one.now_s), one.gpus._child)[1], what="another child")
        starts.append(one.now_s)
        one.now_s += GPU_TIMEOUT_FIRST_S + 0.1
        assert one.gpus.take(one.now_s) is None
        assert one.gpus._child is None
        one.now_s = one.gpus._start_s
    pauses = [
        round(later - earlier - GPU_TIMEOUT_FIRST_S - 0.1)
        for earlier, later in itertools.pairwise(starts)
    ]
    assert pauses == [10, 20, 40]
    assert len(one.said) == 1


def test_a_child_that_cannot_be_killed_keeps_others_from_being_started(
    rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """F44: stuck inside the kernel it does not die; a second one would only get stuck beside it."""
    one = rig()
    assert one.sample()
    child = one.gpus._child
    assert child is not None
    one.gpus._give_up(one.now_s, "the GPU driver does not answer")
    with monkeypatch.context() as patch:
        patch.setattr(type(child), "is_reaped", lambda self: False)
        one.now_s += 1000
        one.gpus.ask(one.now_s)
        assert one.gpus._child is None
        assert one.gpus.take(one.now_s) is None
    wait_until(lambda: (one.gpus.ask(one.now_s), one.gpus._child)[1], what="another child")


def test_a_driver_that_crashes_costs_a_sample(rig: Callable[..., Rig], tmp_path: Path) -> None:
    """F44: the crash is the child's."""
    crash = tmp_path / "crash"
    one = rig(STUB_NVML_CRASH=str(crash))
    assert one.sample()
    crash.touch()
    one.now_s += 1
    assert one.sample() is None
    assert one.said == ["GPU usage is missing: the process that asks for GPUs has ended"]
    crash.unlink()
    one.now_s += GPU_PAUSE_FIRST_S + 1
    wait_until(lambda: (one.gpus.ask(one.now_s), one.gpus._child)[1], what="another child")
    assert one.sample()


@pytest.mark.parametrize(
    "code",
    [
        "print('garbage'); print('[1, 2]'); print('{}'); print('null')",
        "import json; print(json.dumps({'number': 1, 'gpus': 'none'}))",
        "import json; print(json.dumps({'number': 1, 'gpus': [1, None, 'x']}))",
        "print('x' * (3 << 20))",
        "print('[' * 200_000)",
    ],
)
def test_an_answer_that_makes_no_sense_is_no_card(code: str) -> None:
    gpus = Gpus(
        0.0, {"HEADWAY_NVML": "x"}, argv=[sys.executable, "-I", "-S", "-c", f"input(); {code}"]
    )
    gpus.ask(0.0)
    found: list[object] = []
    wait_until(
        lambda: (found.append(gpus.take(0.0)), gpus._child is None)[1], what="the end of the child"
    )
    assert not any(found)


def test_a_child_ends_with_its_parent(library: Path) -> None:
    """Also one that hangs: the agent may be killed while the driver does not answer."""
    code = (
        "import os, sys, time; from headway.agent.probes.gpu import Gpus; gpus = Gpus(0.0)\n"
        "gpus.ask(0.0)\n"
        "while not gpus._child.hear(): time.sleep(0.01)\n"
        "print(gpus._child.pid, flush=True); sys.stdin.read()"
    )
    env = {**os.environ, "HEADWAY_NVML": str(library)}
    parent = subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert not is_gone(pid)
    parent.kill()
    parent.communicate()
    wait_until(lambda: is_gone(pid), what="the end of the child")


def test_samples_have_cards_in_time_and_go_on_without_them(library: Path, tmp_path: Path) -> None:
    """F44, seen from the sampler: during a hang `gpus` is null, everything else is there."""
    hang, facts = tmp_path / "hang", []
    one = Rig(library, STUB_NVML_HANG=str(hang))
    sampler = Sampler(1.0, facts.append, 0.0, one.gpus)
    assert sampler.due_s() == pytest.approx(0.8)
    sampler.step(0.8)
    assert sampler.due_s() == 1.0
    wait_until(lambda: _readable(one), what="an answer")
    sampler.step(1.0)
    hang.touch()
    for tenth in range(18, 31, 2):
        sampler.step(tenth / 10)
    sampler.close(3.1)
    levels = {level: [fact for fact in facts if fact["level"] == level] for level in (0, 1)}
    assert [fact["gpus"] and len(fact["gpus"]) for fact in levels[0]] == [2, None, None]
    assert all(fact["node"]["memory_bytes"] for fact in levels[0])
    assert levels[1][0]["gpus"][0]["load_percent"] == [97, 97, 97]
    assert levels[1][0]["gpus"][0]["throttle"] == ["hardware thermal", "power cap"]


def _readable(one: Rig) -> bool:
    assert one.gpus._child is not None
    return bool(select.select([one.gpus._child._reads], [], [], 0)[0])


def test_nvidia_ml_py_reads_the_same_from_the_stub(library: Path, rig: Callable[..., Rig]) -> None:
    """The vendor's own package agrees with what is read here, structure by structure."""
    if importlib.util.find_spec("pynvml") is None:
        missing("nvidia-ml-py is not installed here; type: make setup")
    code = """
import json, pynvml as n
n.nvmlInit()
found = []
for i in range(n.nvmlDeviceGetCount()):
    h = n.nvmlDeviceGetHandleByIndex(i)
    memory = n.nvmlDeviceGetMemoryInfo(h)
    found.append({"index": i, "name": n.nvmlDeviceGetName(h), "load_percent": n.nvmlDeviceGetUtilizationRates(h).gpu,
        "memory_bytes": memory.used, "memory_total_bytes": memory.total,
        "power_w": n.nvmlDeviceGetPowerUsage(h) / 1000, "sm_mhz": n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM),
        "memory_mhz": n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_MEM),
        "holders": [{"pid": p.pid, "bytes": p.usedGpuMemory} for p in n.nvmlDeviceGetComputeRunningProcesses(h)]})
h = n.nvmlDeviceGetHandleByIndex(0)
kinds = {"ecc_corrected": n.NVML_MEMORY_ERROR_TYPE_CORRECTED, "ecc_uncorrected": n.NVML_MEMORY_ERROR_TYPE_UNCORRECTED}
for name, kind in kinds.items():
    found[0][name] = n.nvmlDeviceGetTotalEccErrors(h, kind, n.NVML_VOLATILE_ECC)
print(json.dumps(found))
"""
    env = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    ours = rig().sample()
    assert ours is not None
    for theirs, card in zip(json.loads(done.stdout), ours, strict=True):
        assert {name: card[name] for name in theirs} == theirs
