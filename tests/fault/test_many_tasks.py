"""Jobs with several tasks, with real servers, agents and processes: roles, nodes, the barrier, and
who ends whom.
"""

import os
import signal
from pathlib import Path

import pytest

from tests.driver import Hw, shim_of
from tests.many import lines, submit, tasks
from tests.waiting import wait_until

SHOW = "echo $HEADWAY_TASK $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR:$MASTER_PORT"


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    return Hw(home, tmp_path)


@pytest.mark.cap(2)
def test_gpu_count_becomes_nodes_times_processes_with_one_world(hw: Hw) -> None:
    job = submit(hw, {"command": ["sh", "-c", SHOW], "processes": 4, "gpu_per_node": 2})
    found = hw.wait_ended(job)
    assert found["state"] == "succeeded", found["attempts"][-1]
    assert {name: [p["rank"] for p in task["processes"]] for name, task in tasks(found).items()} == {
        "worker-0": [0, 1], "worker-1": [2, 3],
    }  # fmt: skip
    words = [lines(hw, job, rank)[0].split() for rank in range(4)]
    assert [w[:4] for w in words] == [
        ["worker-0", "0/4", "0/2", "0"], ["worker-0", "1/4", "1/2", "0"],
        ["worker-1", "2/4", "0/2", "1"], ["worker-1", "3/4", "1/2", "1"],
    ]  # fmt: skip
    assert (
        len({w[4] for w in words}) == 1
        and words[0][4].startswith("127.0.0.1:")
        and len(words[0][4]) > 11
    )


@pytest.mark.cap(3)
def test_roles_have_their_own_commands_and_know_where_the_others_are(hw: Hw) -> None:
    show = "echo $HEADWAY_ROLE $RANK/$WORLD_SIZE $ROLE_RANK/$ROLE_WORLD_SIZE $HEADWAY_TASKS $HEADWAY_ADDRESSES"
    roles = [
        {"name": "ps", "command": ["sh", "-c", show]},
        {
            "name": "worker",
            "command": ["sh", "-c", f"{show}; echo $HEADWAY_PS_ADDRESSES $HEADWAY_TASK_PORT"],
            "instances": 2,
        },
    ]
    job = submit(hw, {"roles": roles})
    assert hw.wait_ended(job)["state"] == "succeeded"
    first, *others = [lines(hw, job, rank) for rank in range(3)]
    assert first[0].startswith("ps 0/3 0/1 ps-0,worker-0,worker-1 127.0.0.1:")
    addresses = first[0].split()[-1].split(",")
    assert len(set(addresses)) == 3 and all(int(a.partition(":")[2]) > 0 for a in addresses)
    for index, told in enumerate(others):
        assert (
            told[0].startswith(f"worker {index + 1}/3 {index}/2 ")
            and told[0].split()[-1].split(",") == addresses
        )
        assert told[1] == f"{addresses[0]} {addresses[index + 1].partition(':')[2]}"


@pytest.mark.cap(40)
def test_one_dead_rank_ends_the_tasks_of_others_and_is_named_to_them(hw: Hw) -> None:
    script = 'if [ "$RANK" = 3 ]; then exit 9; fi; exec sleep 60'
    job = submit(hw, {"command": ["sh", "-c", script], "processes": 4, "nodes": 2})
    found = hw.wait_ended(job)
    assert (found["state"], found["exit_code"]) == ("failed", 9)
    assert found["attempts"][-1]["cause"]["rank"] == 3
    ended = {
        p["rank"]: (p["signal"], p["reason"])
        for task in tasks(found).values()
        for p in task["processes"]
    }
    assert ended[2] == (15, "rank 3 failed")
    assert ended[0] == ended[1] == (15, "rank 3 on worker-1 failed")


def test_a_helper_ends_when_the_others_are_done(hw: Hw) -> None:
    roles = [
        {"name": "board", "command": ["sleep", "60"], "completion": "none"},
        {"name": "worker", "command": ["sh", "-c", "echo $RANK/$WORLD_SIZE"], "instances": 2},
    ]
    job = submit(hw, {"roles": roles})
    found = hw.wait_ended(job)
    assert (found["state"], found["exit_code"]) == ("succeeded", 0)
    assert [lines(hw, job, rank) for rank in range(2)] == [["0/2"], ["1/2"]]
    (helper,) = tasks(found)["board-0"]["processes"]
    assert (helper["rank"], helper["reason"]) == (2, "the other tasks are done")


@pytest.mark.cap(7)
def test_no_process_starts_before_every_task_is_there(hw: Hw) -> None:
    job = submit(hw, {"command": ["true"], "nodes": 3})
    assert hw.wait_ended(job)["state"] == "succeeded"
    events = hw.events(job)
    ready = [e["time"] for e in events if e["type"] == "task_started"]
    begun = [
        p["started_at"] for task in tasks(hw.json("q", job)).values() for p in task["processes"]
    ]
    assert len(ready) == len(begun) == 3 and max(ready) < min(begun)


def test_abort_reaches_every_task(hw: Hw) -> None:
    job = submit(hw, {"command": ["sleep", "60"], "nodes": 3})
    wait_until(
        lambda: sum(len(t["processes"]) for t in tasks(hw.json("q", job)).values()) == 3,
        what="three processes",
    )
    assert hw("abort", job).returncode == 0
    found = hw.wait_ended(job)
    assert found["state"] == "stopped"
    assert {p["reason"] for task in tasks(found).values() for p in task["processes"]} == {"stop"}


def test_a_killed_server_changes_nothing_for_several_tasks(hw: Hw) -> None:
    """P10: the joined end is told to the next one."""
    go = hw.cwd / "go"
    script = f"while [ ! -e {go} ]; do sleep 0.05; done; exit $RANK"
    job = submit(hw, {"command": ["sh", "-c", script], "nodes": 2})
    wait_until(
        lambda: sum(len(t["processes"]) for t in tasks(hw.json("q", job)).values()) == 2,
        what="two processes",
    )
    hw.kill_server()
    go.touch()
    found = hw.wait_ended(job)
    assert (found["state"], found["exit_code"], found["attempts"][-1]["cause"]["rank"]) == (
        "failed",
        1,
        1,
    )


def test_the_others_are_ended_when_an_agent_and_its_rank_are_killed(hw: Hw) -> None:
    job = submit(hw, {"command": ["sleep", "60"], "nodes": 2})
    found = wait_until(
        lambda: (
            (f := hw.json("q", job))
            and sum(len(t["processes"]) for t in tasks(f).values()) == 2
            and f
        ),
        what="two processes",
    )
    (rank,) = [p["pid"] for p in tasks(found)["worker-1"]["processes"]]
    os.kill(shim_of(hw.home, "worker-1"), signal.SIGKILL)
    os.kill(rank, signal.SIGKILL)
    found = hw.wait_state(job, "unknown", "failed")
    wait_until(lambda: hw.json("q", job)["ended_at"] is not None, what="the end")
    others = tasks(hw.json("q", job))["worker-0"]["processes"]
    assert [p["reason"] for p in others] == ["worker-1 is gone"]
