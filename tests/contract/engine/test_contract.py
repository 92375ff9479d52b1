"""The contract that every engine keeps, with real processes. A new engine adds its harness to
HARNESSES.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headway.engines.protocol import EngineId, Given
from headway.model.errors import RefusedError, UsageError
from tests.contract.engine.harness import DockerHarness, LocalHarness, SlurmHarness
from tests.waiting import wait_until

HARNESSES: dict[str, Callable[[Path, pytest.FixtureRequest], LocalHarness]] = {
    "local": lambda home, _: LocalHarness(home),
    "docker": lambda home, request: DockerHarness(home, request.getfixturevalue("docker")),
    "slurm": lambda home, request: SlurmHarness(home, request.getfixturevalue("slurm")),
}


@pytest.fixture(params=sorted(HARNESSES))
def harness(request: pytest.FixtureRequest, home: Path) -> Iterator[LocalHarness]:
    made = HARNESSES[request.param](home, request)
    yield made
    made.close()


SLEEP = ("sleep", "60")


# -- plan


def test_a_plan_says_exactly_what_would_run(harness: LocalHarness) -> None:
    job = harness.job("python", "-c", "print('a b')", processes=2, max_duration_s=60.0)
    plan = harness.engine.plan(job)
    text = plan.describe()
    assert "python -c 'print('\"'\"'a b'\"'\"')'" in text and str(harness.cwd) in text
    assert "ranks 0-1 of 2" in text and "max_duration_s=60" in text
    assert plan == harness.engine.plan(job)


def test_planning_starts_nothing(harness: LocalHarness) -> None:
    job = harness.job(*SLEEP)
    harness.engine.plan(job)
    assert harness.engine.find(f"{job.uuid}-1") is None


@pytest.mark.parametrize(
    ("need", "words"),
    [
        ({"cpus": 100_000}, "100000 CPUs"),
        ({"memory_bytes": 1 << 60}, "memory"),
        ({"gpus": 99}, "99 GPUs"),
    ],
)
def test_what_can_never_fit_is_refused_and_the_resource_named(
    harness: LocalHarness, need: dict[str, int], words: str
) -> None:
    with pytest.raises(RefusedError, match=words):
        harness.engine.plan(harness.job("true", **need))


def test_nonsense_is_refused_at_plan(harness: LocalHarness) -> None:
    for count in (0, -1, 10**9):
        with pytest.raises(UsageError):
            harness.engine.plan(harness.job("true", processes=count))


def test_a_plan_never_shows_the_environment_or_a_token(harness: LocalHarness) -> None:
    given = Given({"SECRET": "hunter22"}, {"worker-0": "id.topsecret"})
    assert "hunter22" not in repr(given) and "topsecret" not in repr(given)


# -- submit and observe


@pytest.mark.parametrize(
    ("script", "exit_code", "number"),
    [
        ("exit 0", 0, None),
        ("exit 7", 7, None),
        ("kill -9 $$", None, 9),
        ("kill -TERM $$", None, 15),
    ],
)
def test_exit_codes_and_signals_come_back(
    harness: LocalHarness, script: str, exit_code: int | None, number: int | None
) -> None:
    end = harness.wait_over(harness.start(harness.job("sh", "-c", script)))
    assert (end["exit_code"], end["signal"]) == (exit_code, number)


def test_a_job_runs_in_its_folder_environment_and_umask(harness: LocalHarness) -> None:
    script = "pwd; echo $WORD; umask; echo ${RANK-none}/${WORLD_SIZE-none}"
    engine_id = harness.start(harness.job("sh", "-c", script, umask=0o027), {"WORD": "a;b $(c)"})
    harness.wait_over(engine_id)
    assert harness.output(engine_id).splitlines() == [
        str(harness.cwd),
        "a;b $(c)",
        "0027",
        "none/none",
    ]


def test_every_process_has_its_rank(harness: LocalHarness) -> None:
    engine_id = harness.start(harness.job("sh", "-c", "echo $RANK of $WORLD_SIZE", processes=3))
    harness.wait_over(engine_id)
    assert [harness.output(engine_id, f"stdout-{r}") for r in range(3)] == [
        f"{r} of 3\n" for r in range(3)
    ]


def test_a_running_job_is_seen_with_the_engines_own_word(harness: LocalHarness) -> None:
    engine_id = harness.start(harness.job(*SLEEP))
    harness.wait_running(engine_id)
    assert harness.engine.observe([engine_id])[engine_id].state_word


def test_one_call_observes_all(harness: LocalHarness) -> None:
    ids = [harness.start(harness.job(*SLEEP)) for _ in range(5)]
    for engine_id in ids:
        harness.wait_running(engine_id)
    assert {o.state for o in harness.engine.observe(ids).values()} == {"running"}


def test_an_id_that_never_was_is_gone_and_not_failed(harness: LocalHarness) -> None:
    job = harness.job("true")
    engine_id = EngineId(f"{job.uuid}-1-worker-0")
    assert harness.state(engine_id) == "gone"


def test_many_jobs_run_and_end_each_with_its_own_code(harness: LocalHarness) -> None:
    ids = {harness.start(harness.job("sh", "-c", f"exit {code}")): code for code in range(20)}
    assert {engine_id: harness.wait_over(engine_id)["exit_code"] for engine_id in ids} == ids


# -- the same key


def test_the_same_key_is_the_same_job(harness: LocalHarness) -> None:
    """F23, F24."""
    job = harness.job(*SLEEP)
    first = harness.start(job)
    assert harness.start(job) == first
    harness.wait_running(first)
    assert harness.start(job) == first
    assert harness.starts(first) == 1


def test_the_same_key_after_the_end_starts_nothing(harness: LocalHarness) -> None:
    job = harness.job("true")
    engine_id = harness.start(job)
    harness.wait_over(engine_id)
    assert harness.start(job) == engine_id
    assert harness.starts(engine_id) == 1 and harness.state(engine_id) in ("ended", "gone")


def test_ten_submits_of_one_key_at_once_start_one_job(harness: LocalHarness) -> None:
    job = harness.job(*SLEEP)
    ids: list[EngineId] = []
    threads = [threading.Thread(target=lambda: ids.append(harness.start(job))) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 10 and len(set(ids)) == 1
    harness.wait_running(ids[0])
    assert harness.starts(ids[0]) == 1


# -- cancel


def test_a_running_job_can_be_cancelled_and_says_so(harness: LocalHarness) -> None:
    engine_id = harness.start(harness.job(*SLEEP))
    harness.wait_running(engine_id)
    assert harness.engine.cancel(engine_id)
    end = harness.wait_over(engine_id)
    assert (end["signal"], end["reason"]) == (signal.SIGTERM, "stop")


def test_cancel_may_be_repeated_and_races_nothing(harness: LocalHarness) -> None:
    engine_id = harness.start(harness.job(*SLEEP))
    wait_until(lambda: harness.engine.cancel(engine_id), what="a cancel that reaches the agent")
    harness.engine.cancel(engine_id)
    wait_until(lambda: harness.state(engine_id) in ("ended", "gone"), what="its end")
    told = [fact for fact in harness.facts(engine_id) if fact["type"] == "task_ended"]
    # an engine with a queue of its own may take it out before it starts
    assert told or harness.engine.queues
    assert harness.engine.cancel(engine_id) is False


def test_cancel_of_what_is_not_there_says_no(harness: LocalHarness) -> None:
    assert harness.engine.cancel(EngineId(f"{harness.job('true').uuid}-1-worker-0")) is False


# -- restart and adoption


def test_a_restarted_server_finds_what_runs_by_its_key(harness: LocalHarness) -> None:
    """F23, P10."""
    job = harness.job(*SLEEP)
    engine_id = harness.start(job)
    harness.wait_running(engine_id)
    engine = harness.restart()
    assert engine.find(f"{job.uuid}-1") == engine_id
    assert harness.state(engine_id) == "running"
    assert harness.start(job) == engine_id and harness.starts(engine_id) == 1
    assert engine.cancel(engine_id)
    assert harness.wait_over(engine_id)["reason"] == "stop"


def test_the_end_of_a_job_that_ended_meanwhile_is_found(harness: LocalHarness) -> None:
    engine_id = harness.start(harness.job("sh", "-c", "exit 3"))
    harness.wait_over(engine_id)
    harness.restart()
    assert harness.wait_over(engine_id)["exit_code"] == 3


def test_a_job_outlives_the_servers_process_group(harness: LocalHarness) -> None:
    engine_id = harness.start(
        harness.job(sys.executable, "-c", "import os; print(os.getsid(0), os.getpgid(0))")
    )
    harness.wait_over(engine_id)
    session, group = harness.output(engine_id).split()
    assert int(session) != os.getsid(0) and int(group) != os.getpgid(0)
