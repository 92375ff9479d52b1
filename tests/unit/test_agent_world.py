"""Ports that are kept, the environment of ranks, and the barrier of the shim's machine."""

import re
import socket

from headway.agent.shim.machine import (
    Begun,
    GoAhead,
    LeftoversSeen,
    ShimMachine,
    ShimPlan,
    StartRank,
    StopAsked,
    Write,
)
from headway.agent.shim.ports import Ports
from headway.agent.shim.rank_env import kept, merge, replaced, world_variables
from headway.settings.layers import is_of_a_job
from headway.settings.schema import SETTINGS
from headway.spool.layout import TaskFile


def task(**fields: object) -> TaskFile:
    base = {
        "uuid": "u",
        "attempt": 1,
        "task": "worker-0",
        "home": "/h",
        "processes": 2,
        "world_size": 4,
    }
    return TaskFile(**{**base, **fields})  # type: ignore[arg-type]


PEERS = [
    {"task": "worker-0", "role": "worker", "address": "10.0.0.1", "port": 1, "master_port": 2},
    {"task": "data-set-0", "role": "data-set", "address": "10.0.0.2", "port": 3},
]


def test_a_kept_port_goes_to_nobody_else_and_a_server_may_still_listen_on_it() -> None:
    ports = Ports()
    number = ports.take("127.0.0.1")
    assert number is not None
    other = Ports()
    assert number not in {other.take("127.0.0.1") for _ in range(200)}
    other.close()
    with socket.socket() as server, socket.socket() as client:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", number))
        server.listen()
        client.connect(("127.0.0.1", number))
    ports.close()


def test_kept_ports_are_all_different() -> None:
    ports = Ports()
    numbers = [ports.take("127.0.0.1") for _ in range(500)]
    assert None not in numbers and len(set(numbers)) == 500
    ports.close()


def test_ranks_find_the_names_of_torchrun_and_openmpi_and_every_address() -> None:
    env = world_variables(task(), 1, PEERS)
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("10.0.0.1", "2")
    assert (env["OMPI_COMM_WORLD_RANK"], env["OMPI_COMM_WORLD_SIZE"], env["OMPI_COMM_WORLD_LOCAL_RANK"]) == (
        "1", "4", "1",
    )  # fmt: skip
    assert (
        env["HEADWAY_HOSTS"] == "10.0.0.1,10.0.0.2"
        and env["HEADWAY_DATA_SET_ADDRESSES"] == "10.0.0.2:3"
    )
    assert env["HEADWAY_TASK_PORT"] == "1"
    assert not [name for name in env if name.startswith(("SLURM", "PMI"))]


def test_a_process_alone_is_not_taken_for_one_of_mpi() -> None:
    env = world_variables(task(processes=1, world_size=1), 0, PEERS[:1])
    assert not [name for name in env if name.startswith("OMPI")] and env["WORLD_SIZE"] == "1"


def test_what_a_person_set_for_the_job_wins_and_what_his_shell_holds_does_not() -> None:
    ours = {"MASTER_PORT": "1", "RANK": "0"}
    env = {"MASTER_PORT": "29500", "RANK": "7", "PMIX_RANK": "3", "A": "b"}
    assert merge(env, ours, ["MASTER_PORT"]) == {"MASTER_PORT": "29500", "RANK": "0", "A": "b"}
    assert merge(env, ours, [])["MASTER_PORT"] == "1"
    assert replaced(env, []) == ["MASTER_PORT"] and replaced(env, ["MASTER_PORT"]) == []
    assert replaced({**env, "HEADWAY_UUID": "u"}, []) == []


def test_ranks_wait_at_the_barrier_and_pass_it_once() -> None:
    machine = ShimMachine(ShimPlan(2, barrier=True, max_duration_s=5.0))
    assert not [i for i in machine.handle(Begun(), 0.0) if isinstance(i, StartRank)]
    assert machine.wake_s(0.0) is None  # the time limit is the program's
    assert machine.handle(GoAhead(), 100.0) == [StartRank(0), StartRank(1)]
    assert machine.wake_s(100.0) == 105.0
    assert machine.handle(GoAhead(), 101.0) == []


def test_a_stop_at_the_barrier_ends_the_task_without_a_start() -> None:
    machine = ShimMachine(ShimPlan(2, barrier=True), ships=False)
    machine.handle(Begun(), 0.0)
    machine.handle(StopAsked("command", reason="worker-1 is gone"), 1.0)
    facts = [i.fact for i in machine.handle(LeftoversSeen(()), 1.0) if isinstance(i, Write)]
    assert [(f["exit_code"], f["signal"], f["reason"], f["lost"]) for f in facts] == [
        (None, None, "worker-1 is gone", False)
    ]
    assert machine.handle(GoAhead(), 2.0) == []


LAUNCHER = re.compile("RANK|LOCAL_|WORLD_SIZE|NODE_RANK|GROUP_RANK|ROLE_|MASTER_|OMPI_|SLURM_|PMI")


def test_a_task_without_ranks_gets_no_variable_of_a_launcher() -> None:
    given = world_variables(task(processes=1, world_size=1, ranked=False), 0, PEERS)
    assert [name for name in given if LAUNCHER.match(name)] == []
    assert given["HEADWAY_LOCAL_RANK"] == "0" and given["HEADWAY_TASK_PORT"] == "1"


def test_without_ranks_a_variable_of_the_persons_own_stays_and_one_of_an_outer_job_does_not() -> (
    None
):
    own = {"RANK": "3", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "x"}
    assert merge(own, {"A": "1"}, (), ranked=False) == {**own, "A": "1"}
    inside = {**own, "HEADWAY_UUID": "u"}
    assert merge(inside, {}, (), ranked=False) == {"HEADWAY_UUID": "u"}
    assert merge(inside, {}, ["RANK"], ranked=False) == {"HEADWAY_UUID": "u", "RANK": "3"}


def test_of_slurm_a_task_without_ranks_keeps_the_job_and_not_the_step() -> None:
    environ = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "1", "HOME": "/"}
    alone = task(ranked=False, keep_env=["SLURM_"])
    assert kept(alone, environ) == {"SLURM_JOB_ID": "7"}
    assert "SLURM_PROCID" in kept(task(keep_env=["SLURM_"]), environ)


def test_what_a_job_is_given_is_never_taken_for_a_setting_by_hw_inside_it() -> None:
    given = {name for name in world_variables(task(), 1, PEERS) if name.startswith("HEADWAY_")}
    given |= {"HEADWAY_FOLDER_S", "HEADWAY_UUID", "HEADWAY_JOB", "HEADWAY_ARRAY_INDEX"}
    assert not given & {setting.variable for setting in SETTINGS.values()}
    assert [name for name in given if not is_of_a_job(name)] == []
