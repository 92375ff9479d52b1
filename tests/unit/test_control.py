"""Executing decisions (server/control/control.py) with the real store and an engine that a test
moves by hand.
"""

import asyncio
import json
import stat
import threading
import time
from typing import Any

from headway.engines.protocol import Given, Observation
from headway.model.errors import NotFoundError, RefusedError, UnreachableError, UsageError
from headway.model.ids import new_uuid
from headway.model.job import State
from headway.server.control import blocking_calls
from headway.server.control.drain import LINGER_S
from headway.wire.batch import TaskKey
from tests.unit.control_bench import Bench, ended, in_loop, refused, started
from tests.waiting import wait_until

# -- submit


@in_loop
async def test_a_submitted_job_is_launched_with_its_environment_and_a_token(bench: Bench) -> None:
    job = await bench.submit("python", "train.py")
    assert job.state is State.WAITING and job.id.startswith("job-")
    await bench.look()
    given = bench.engine.started[f"{job.uuid}-1"]
    assert given.env["MY_KEY"] == "hunter22" and bench.token_is_open(job)
    assert bench.job(job.pk).attempts[0].engine_id == f"{job.uuid}-1-worker-0"


@in_loop
async def test_the_same_uuid_is_the_same_job(bench: Bench) -> None:
    """P9."""
    uuid = new_uuid()
    first, *others = await asyncio.gather(*(bench.submit(uuid=uuid) for _ in range(10)))
    assert {other.id for other in others} == {first.id} and len(bench.jobs()) == 1
    await bench.look(3)
    assert bench.engine.submits == [f"{uuid}-1"]
    await bench.run_to_end(first)
    assert (await bench.submit("other", uuid=uuid)).id == first.id


@in_loop
async def test_what_can_never_fit_or_is_wrong_leaves_no_job_and_no_file(bench: Bench) -> None:
    await refused(RefusedError, bench.submit(cpus=99))
    await refused(UsageError, bench.submit(cwd="/no/such/folder"))
    await refused(UsageError, bench.submit(env={"A=B": "c"}))
    await refused(UsageError, bench.submit(attached=True))
    await refused(UsageError, bench.submit(uuid="../../etc/passwd"))
    assert bench.jobs() == [] and bench.env_files() == []


@in_loop
async def test_the_environment_rests_in_a_private_file_until_the_end(bench: Bench) -> None:
    job = await bench.submit()
    path = bench.paths.env / f"{job.uuid}.json"
    assert (
        stat.S_IMODE(path.stat().st_mode) == 0o600
        and json.loads(path.read_text())["env"]["MY_KEY"] == "hunter22"
    )
    assert b"hunter22" not in bench.paths.db.read_bytes()
    await bench.look()
    assert path.exists()
    await bench.run_to_end(job)
    assert bench.env_files() == []


@in_loop
async def test_stale_environments_go_at_the_next_start(bench: Bench) -> None:
    job = await bench.submit()
    (bench.paths.env / f"{new_uuid()}.json").write_text("{}")
    (bench.paths.env / ".half").write_text("{}")
    lost = await bench.submit()
    await bench.look()
    await bench.run_to_end(lost, exit_code=None, lost=True)
    # the server was killed before it could remove it
    (bench.paths.env / f"{lost.uuid}.json").write_text("{}")
    await bench.restart()
    assert bench.env_files() == [f"{job.uuid}.json"]


@in_loop
async def test_no_more_than_max_running_are_launched(bench: Bench) -> None:
    jobs = [await bench.submit() for _ in range(4)]
    await bench.look(3)
    assert bench.engine.submits == [f"{job.uuid}-1" for job in jobs[:2]]
    await bench.run_to_end(jobs[0])
    await bench.look()
    assert bench.engine.submits[2:] == [f"{jobs[2].uuid}-1"]


# -- ends


@in_loop
async def test_facts_become_states_and_causes(bench: Bench) -> None:
    job = await bench.submit()
    await bench.look()
    await bench.tell(job, started())
    await bench.look()
    assert bench.job(job.pk).state is State.RUNNING
    await bench.run_to_end(job, exit_code=None, signal=11)
    found = bench.job(job.pk)
    assert (found.state, found.exit_code, found.signal) == (State.FAILED, None, 11)
    assert found.attempts[0].state is State.FAILED
    assert (
        found.attempts[0].cause is not None
        and found.attempts[0].cause["cause"] == "segfault_or_abort"
    )


@in_loop
async def test_a_lost_exit_is_unknown_with_an_end_and_can_be_deleted(bench: Bench) -> None:
    job = await bench.submit()
    await bench.look()
    await bench.run_to_end(job, exit_code=None, lost=True)
    found = bench.job(job.pk)
    assert found.state is State.UNKNOWN and found.ended_ns is not None
    assert found.attempts[0].cause is not None and found.attempts[0].cause["cause"] == "agent_lost"
    await bench.look(3)
    assert bench.job(job.pk).state is State.UNKNOWN
    await refused(RefusedError, bench.control.abort(job.pk))
    await bench.control.delete(job.pk)
    assert bench.jobs() == []


@in_loop
async def test_a_token_ends_when_nothing_is_left_to_send(bench: Bench) -> None:
    job = await bench.submit()
    await bench.look()
    name = f"{job.uuid}-1-worker-0"
    await bench.run_to_end(job)
    assert bench.job(job.pk).state is State.SUCCEEDED and bench.token_is_open(job)
    bench.engine.states[name] = Observation("ended", "still sending", {"started": True})
    await bench.look()
    assert bench.token_is_open(job)
    bench.engine.states[name] = Observation("ended", "ended", {"started": True, "drained": True})
    await bench.look()
    assert not bench.token_is_open(job)


@in_loop
async def test_what_an_ended_job_left_unsent_is_salvaged_also_after_a_restart(bench: Bench) -> None:
    """F21."""
    job = await bench.submit()
    await bench.look()
    name = f"{job.uuid}-1-worker-0"
    bench.engine.states[name] = Observation(
        "gone", "agent gone", {"started": True, "salvage": True}
    )
    await bench.run_to_end(job)
    assert bench.job(job.pk).state is State.SUCCEEDED
    before = len(bench.engine.salvaged)
    await bench.restart()
    await bench.look()
    assert len(bench.engine.salvaged) == before + 1 and bench.token_is_open(job)


@in_loop
async def test_a_place_that_a_scheduler_keeps_after_the_end_was_told_is_given_back(
    bench: Bench,
) -> None:
    """Its daemons may have died with the job: it would hold nodes to the end of its time."""
    bench.engine.queues = True
    job = await bench.submit()
    await bench.look()
    name = f"{job.uuid}-1-worker-0"
    await bench.run_to_end(job)
    assert (
        bench.job(job.pk).state is State.SUCCEEDED and bench.engine.states[name].state == "running"
    )
    await bench.look(5)
    assert bench.engine.cancelled == [], "an agent may still send, and Slurm takes its time"
    bench.now_s += LINGER_S
    await bench.look()
    assert bench.engine.cancelled == [name]
    await bench.look()
    assert bench.engine.cancelled == [name], "not with every look"
    bench.now_s += LINGER_S
    await bench.look()
    assert bench.engine.cancelled == [name, name] and bench.token_is_open(job)
    bench.engine.states[name] = Observation(
        "ended", "CANCELLED", {"started": True, "drained": True}
    )
    await bench.look()
    assert not bench.token_is_open(job)


# -- stopping


@in_loop
async def test_a_waiting_job_is_stopped_without_ever_starting(bench: Bench) -> None:
    job = await bench.submit()
    await bench.control.abort(job.pk)
    await bench.look()
    assert bench.job(job.pk).state is State.STOPPED and bench.engine.submits == []
    assert bench.env_files() == []
    await refused(RefusedError, bench.control.abort(job.pk))


@in_loop
async def test_a_running_job_is_asked_to_stop_once_and_again_after_its_grace(bench: Bench) -> None:
    job = await bench.submit(grace_s=10.0)
    await bench.look()
    await bench.tell(job, started())
    await bench.control.abort(job.pk)
    await bench.control.abort(job.pk)
    await bench.look(5)
    assert bench.job(job.pk).state is State.STOPPING and len(bench.engine.cancelled) == 1
    bench.now_s += 20
    await bench.look()
    assert len(bench.engine.cancelled) == 2
    await bench.run_to_end(job, exit_code=None, signal=15, reason="stop", first_rank=None)
    assert bench.job(job.pk).state is State.STOPPED


@in_loop
async def test_a_stop_request_survives_the_server(bench: Bench) -> None:
    job = await bench.submit()
    await bench.look()
    await bench.control.abort(job.pk)
    await bench.restart()
    await bench.look()
    assert bench.engine.cancelled == [f"{job.uuid}-1-worker-0"]


@in_loop
async def test_where_the_engine_has_nobody_to_ask_the_agent_gets_a_command(bench: Bench) -> None:
    job = await bench.submit(grace_s=7.0)
    await bench.look()
    bench.engine.can_cancel = False
    await bench.control.abort(job.pk)
    await bench.look(4)
    key = TaskKey(job.uuid, 1, "worker-0")
    (command,) = await bench.control.commands_for(key, 0, [])
    assert (command["do"], command["grace_s"]) == ("stop", 7.0)
    assert len(bench.engine.cancelled) >= 3
    assert await bench.control.commands_for(key, 0, [command["seq"]]) == []


# -- commands


@in_loop
async def test_a_waiting_poll_is_answered_as_soon_as_there_is_a_command(bench: Bench) -> None:
    job = await bench.submit()
    await bench.look()
    key = TaskKey(job.uuid, 1, "worker-0")
    poll = asyncio.create_task(bench.control.commands_for(key, 10, []))
    await asyncio.sleep(0)
    await bench.control.signal(job.pk, 12)
    (command,) = await asyncio.wait_for(poll, 5)
    assert (command["do"], command["signal"]) == ("signal", 12)
    (again,) = await bench.control.commands_for(key, 0, [])  # not yet told as done
    assert again == command


@in_loop
async def test_an_interrupt_of_a_job_whose_processes_have_not_started_aborts_it(
    bench: Bench,
) -> None:
    job = await bench.submit()
    await bench.look()
    await bench.control.signal(job.pk, 2)
    found = bench.job(job.pk)
    assert found.stop_requested_ns is not None and found.stop_signal is None


@in_loop
async def test_commands_are_bounded_and_their_numbers_grow_across_servers(bench: Bench) -> None:
    job = await bench.submit()
    await bench.look()
    for _ in range(64):
        await bench.control.signal(job.pk, 10)
    await refused(RefusedError, bench.control.signal(job.pk, 10))
    key = TaskKey(job.uuid, 1, "worker-0")
    last = (await bench.control.commands_for(key, 0, []))[-1]["seq"]
    wait_until(lambda: time.time_ns() // 1_000_000 > last, what="a later millisecond")
    await bench.restart()
    await bench.control.signal(job.pk, 10)
    assert (await bench.control.commands_for(key, 0, []))[0]["seq"] > last


@in_loop
async def test_a_signal_needs_a_number_and_a_job_that_runs(bench: Bench) -> None:
    job = await bench.submit()
    for number in (0, -1, 999, True, "9"):
        await refused(UsageError, bench.control.signal(job.pk, number))  # type: ignore[arg-type]
    await refused(RefusedError, bench.control.signal(job.pk, 2))
    await refused(NotFoundError, bench.control.signal(12345, 2))


@in_loop
async def test_stopping_the_server_answers_whoever_waits(bench: Bench) -> None:
    poll = asyncio.create_task(
        bench.control.commands_for(TaskKey(new_uuid(), 1, "worker-0"), 10, [])
    )
    await asyncio.sleep(0)
    await bench.control.stop()
    assert await asyncio.wait_for(poll, 5) == []


# -- starts that go wrong


@in_loop
async def test_a_refused_start_fails_the_job_with_the_reason(bench: Bench) -> None:
    job = await bench.submit()
    bench.engine.refuse = RefusedError("the folder /gone does not exist")
    await bench.look()
    found = bench.job(job.pk)
    assert found.state is State.FAILED
    assert (
        found.attempts[0].cause is not None
        and "/gone does not exist" in found.attempts[0].cause["text"]
    )


@in_loop
async def test_a_start_that_fails_for_now_is_tried_again_later(bench: Bench) -> None:
    job = await bench.submit()
    bench.engine.refuse = UnreachableError("No space left on device")
    await bench.look(3)
    assert bench.job(job.pk).state is State.WAITING and 1 <= len(bench.engine.submits) <= 2
    assert (
        "could not be started: No space left"
        in (await bench.control.explain(bench.job(job.pk))).reason
    )
    bench.engine.refuse, bench.now_s = None, bench.now_s + 60
    await bench.look()
    assert f"{job.uuid}-1" in bench.engine.started


@in_loop
async def test_a_start_whose_answer_is_lost_is_found_by_its_key(bench: Bench) -> None:
    """F24."""
    job = await bench.submit()
    bench.engine.after_submit = UnreachableError("the answer was lost")
    await bench.look()
    bench.engine.after_submit = None
    bench.now_s += 60
    await bench.look(2)
    found = bench.job(job.pk)
    assert found.attempts[0].engine_id == f"{job.uuid}-1-worker-0" and found.state is State.RUNNING
    assert len(found.attempts) == 1 and bench.engine.submits == [f"{job.uuid}-1"]


@in_loop
async def test_a_server_killed_before_the_engine_heard_launches_after_its_restart(
    bench: Bench,
) -> None:
    """F23: the intent was stored, with a token whose secret died with the server."""
    job = await bench.submit()
    bench.engine.refuse = UnreachableError("killed here")
    await bench.look()
    bench.engine.refuse = None
    await bench.restart()
    await bench.look(2)
    assert len(bench.job(job.pk).attempts) == 1 and bench.token_is_open(job)


@in_loop
async def test_a_job_that_ends_while_the_engine_is_asked_is_not_started_again(bench: Bench) -> None:
    """P9: a killed server never wrote down the engine's id; everything is sent, and the spool
    removed, meanwhile.
    """
    job = await bench.submit()
    bench.engine.after_submit = UnreachableError("killed here")
    await bench.look()
    bench.engine.after_submit = None
    await bench.restart()
    loop = asyncio.get_running_loop()

    def send_everything() -> None:
        asyncio.run_coroutine_threadsafe(bench.tell(job, started(), ended()), loop).result()

    bench.engine.before_find = send_everything
    bench.engine.started.clear()
    await bench.look(3)
    assert bench.engine.submits == [f"{job.uuid}-1"] and bench.job(job.pk).state is State.SUCCEEDED


@in_loop
async def test_a_job_whose_environment_is_gone_is_not_started_without_it(bench: Bench) -> None:
    job = await bench.submit()
    (bench.paths.env / f"{job.uuid}.json").unlink()
    await bench.look()
    found = bench.job(job.pk)
    assert found.state is State.FAILED and bench.engine.submits == []


@in_loop
async def test_an_engine_that_hangs_leaves_states_as_they_are(bench: Bench) -> None:
    """F22: nothing is called failed, and the verbs still work."""
    job = await bench.submit()
    await bench.look()
    await bench.tell(job, started())
    await bench.look()
    bench.engine.hang = threading.Event()
    bench.control._calls._timeout_s = 0.05
    await bench.look(3)
    assert bench.job(job.pk).state is State.RUNNING
    bench.control._calls._timeout_s = blocking_calls.CALL_TIMEOUT_S
    assert (await bench.submit()).state is State.WAITING


@in_loop
async def test_silence_is_unknown_and_a_word_is_running_again(bench: Bench) -> None:
    job = await bench.submit()
    await bench.look()
    await bench.tell(job, started())
    await bench.look()
    name = f"{job.uuid}-1-worker-0"
    bench.engine.states[name] = Observation("unknown", "no answer")
    bench.now_s += 31
    await bench.look()
    assert bench.job(job.pk).state is State.UNKNOWN
    await bench.control.commands_for(TaskKey(job.uuid, 1, "worker-0"), 0, [])
    await bench.look()
    assert bench.job(job.pk).state is State.RUNNING


@in_loop
async def test_heard_times_and_the_engines_words_are_stored_in_batches(bench: Bench) -> None:
    job = await bench.submit()
    await bench.look(2)
    bench.control.heard(TaskKey(job.uuid, 1, "worker-0"))
    bench.engine.states[f"{job.uuid}-1-worker-0"] = Observation(
        "running", "COMPLETING", {"started": True}
    )
    bench.now_s += 10
    await bench.look()
    (attempt,) = bench.job(job.pk).attempts
    assert attempt.tasks[0].heard_ns is not None and attempt.engine_word == "COMPLETING"


# -- resubmit, delete, register


@in_loop
async def test_a_resubmitted_job_is_new_and_the_old_one_is_left_as_it_ended(bench: Bench) -> None:
    old = await bench.submit("python", "train.py", tags=["a"])
    await bench.look()
    await bench.run_to_end(old, exit_code=1)
    new = await bench.control.resubmit(
        old.pk, new_uuid(), {"processes": 2, "tags": ["b"]}, {"PATH": "/bin"}
    )
    assert (new.spec.parent, new.spec.processes, new.spec.command) == (old.id, 2, old.spec.command)
    assert bench.job(old.pk).state is State.FAILED and bench.job(old.pk).stop_requested_ns is None


@in_loop
async def test_a_running_job_is_stopped_only_after_the_new_one_is_stored(bench: Bench) -> None:
    old = await bench.submit()
    await bench.look()
    await refused(RefusedError, bench.control.resubmit(old.pk, new_uuid(), {"cpus": 99}, {}))
    assert bench.job(old.pk).stop_requested_ns is None
    uuid = new_uuid()
    new = await bench.control.resubmit(old.pk, uuid, {}, None)
    assert bench.job(old.pk).stop_requested_ns is not None
    assert (await bench.control.resubmit(old.pk, uuid, {}, None)).id == new.id


@in_loop
async def test_resubmit_without_an_environment_needs_the_old_one(bench: Bench) -> None:
    old = await bench.submit()
    await bench.look()
    await bench.run_to_end(old)
    await refused(UsageError, bench.control.resubmit(old.pk, new_uuid(), {}, None))
    await refused(UsageError, bench.control.resubmit(old.pk, new_uuid(), {"comand": ["x"]}, {}))


@in_loop
async def test_what_was_set_for_a_job_is_set_for_the_next_one_too_but_for_secrets(
    bench: Bench,
) -> None:
    secret = {
        "MY_TOKEN": "hunter22hunter22",
        "HIDES": "x hunter22hunter22",
        "MY_KEY": "k",
        "LONG": "y" * 5000,
    }
    given = {"A": "1", "B": "2", "C": "0", **secret}
    old = await bench.submit(env=given, env_set=["A", "B", *secret])
    assert old.spec.env_kept == {"A": "1", "B": "2"}
    await bench.look()
    await bench.run_to_end(old)
    changes = {"env_set": ["B"], "env_kept": {"A": "forged"}}
    new = await bench.control.resubmit(old.pk, new_uuid(), changes, {"A": "shell", "B": "3"})
    assert new.spec.env_kept == {"A": "1", "B": "3"} and new.spec.env_set == old.spec.env_set
    await bench.look()
    assert bench.engine.started[f"{new.uuid}-1"].env == {"A": "1", "B": "3"}


@in_loop
async def test_of_a_task_that_never_began_nothing_is_left(bench: Bench) -> None:
    job = await bench.submit()
    await bench.look()
    name = f"{job.uuid}-1-worker-0"
    bench.engine.states[name] = Observation("gone", "exited with 137", {"started": False})
    await bench.look(6)
    assert bench.job(job.pk).state == "failed"
    assert name in bench.engine.discarded


@in_loop
async def test_only_what_is_over_can_be_deleted(bench: Bench) -> None:
    job = await bench.submit()
    await bench.look()
    await refused(RefusedError, bench.control.delete(job.pk))
    await bench.run_to_end(job)
    await bench.control.delete(job.pk)
    assert bench.jobs() == [] and bench.engine.discarded == [f"{job.uuid}-1-worker-0"]


def registration(**changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "uuid": new_uuid(),
        "name": "plain",
        "argv": ["python", "plain.py"],
        "cwd": "/gone",
        "user": "me",
    }
    return {
        **body,
        "host": "host",
        "started_ns": 1_700_000_000 * 10**9,
        "world_size": 1,
        "umask": 18,
        "tags": [],
        **changes,
    }


@in_loop
async def test_a_script_started_without_us_becomes_a_running_job(bench: Bench) -> None:
    body = registration()
    first, second = await bench.control.register(body), await bench.control.register(body)
    assert {k: v for k, v in first.items() if k != "token"} == {
        k: v for k, v in second.items() if k != "token"
    }
    (row,) = bench.jobs()
    job = bench.job(row.pk)
    assert (job.state, job.spec.attached, job.started_ns) == (
        State.RUNNING,
        True,
        1_700_000_000 * 10**9,
    )
    assert len(job.attempts) == 1
    bench.engine.states[f"{job.uuid}-1-worker-0"] = Observation("running", "up", {"started": True})
    await bench.look(2)
    assert bench.engine.submits == []
    await bench.run_to_end(job)
    assert bench.job(job.pk).state is State.SUCCEEDED


@in_loop
async def test_a_script_whose_shipper_died_before_it_registered_is_salvaged(bench: Bench) -> None:
    uuid = new_uuid()
    bench.engine.started[f"{uuid}-1"] = Given({}, {})
    salvage = {"started": True, "salvage": True, "attached": True}
    bench.engine.states[f"{uuid}-1-worker-0"] = Observation("gone", "agent gone", salvage)
    other = new_uuid()  # of a database that is no longer there: whatever it sent would be refused
    bench.engine.started[f"{other}-1"] = Given({}, {})
    bench.engine.states[f"{other}-1-worker-0"] = Observation(
        "gone", "agent gone", {**salvage, "attached": False}
    )
    await bench.look()
    assert bench.engine.salvaged == [f"{uuid}-1-worker-0"]


@in_loop
async def test_a_job_that_waits_for_another_try_can_be_stopped_at_once(bench: Bench) -> None:
    job = await bench.submit()
    bench.engine.refuse = UnreachableError("not now")
    await bench.look()
    await bench.control.abort(job.pk)
    await bench.look()
    assert bench.job(job.pk).state is State.STOPPED


@in_loop
async def test_a_registration_cannot_take_over_another_job(bench: Bench) -> None:
    job = await bench.submit()
    await refused(RefusedError, bench.control.register(registration(uuid=job.uuid)))
    wrong: dict[str, Any]
    for wrong in ({"uuid": "x"}, {"argv": []}, {"name": "../x"}, {"world_size": -1}, {"tags": [5]}):
        await refused(UsageError, bench.control.register(registration(**wrong)))


@in_loop
async def test_the_loop_wakes_by_itself(bench: Bench) -> None:
    await bench.control.start()
    job = await bench.submit()
    for _ in range(500):
        if bench.engine.submits:
            break
        await asyncio.sleep(0.01)
    assert bench.engine.submits == [f"{job.uuid}-1"]


@in_loop
async def test_a_secret_in_the_command_is_masked_in_the_store_and_given_to_the_process(
    bench: Bench,
) -> None:
    job = await bench.submit(command=["train", "--api-key", "hunter22-hunter22"])
    assert job.spec.command == ["train", "--api-key", "********"] and job.spec.masked
    private = json.loads((bench.paths.env / f"{job.uuid}.json").read_text())
    assert private["command"] == ["train", "--api-key", "hunter22-hunter22"]


@in_loop
async def test_the_loop_is_woken_by_what_agents_tell_and_not_by_what_it_writes_itself(
    bench: Bench,
) -> None:
    control = bench.control
    control.wakeup.loop = asyncio.get_running_loop()
    bench.store.listen(control.on_change)

    async def woken() -> bool:
        # by now listeners have heard of what was before
        await asyncio.wrap_future(bench.store.write(lambda c: None))
        await asyncio.sleep(0)  # and the wake comes through the event loop
        found = control.wakeup.event.is_set()
        control.wakeup.event.clear()
        return found

    first = await bench.submit()
    assert await woken()
    await bench.look()
    assert await woken()  # there is room for more
    await bench.submit()
    assert await woken()
    await bench.look()
    assert not await woken()  # two run, and no more may
    third = await bench.submit()
    assert not await woken()  # it could not start in any case
    await bench.tell(first, started(), ended())
    assert await woken()
    await bench.look()
    assert (
        bench.job(first.pk).state is State.SUCCEEDED and f"{third.uuid}-1" in bench.engine.started
    )


@in_loop
async def test_a_start_that_is_refused_makes_room_for_the_next_at_once(bench: Bench) -> None:
    bench.engine.refuse = RefusedError("no such folder")
    for _ in range(3):
        await bench.submit()
    await bench.look()
    assert [job.state for job in bench.jobs()].count(
        State.FAILED
    ) == 2 and bench.control.wakeup.event.is_set()
