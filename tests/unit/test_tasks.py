"""A job becomes tasks: GPU count → nodes × processes, roles → instances (capabilities 2, 3)."""

from typing import Any

import pytest

from headway.engines.plan import check_machine, tasks_of, world_size
from headway.engines.protocol import Node
from headway.model.errors import RefusedError, UsageError
from headway.model.job import JobSpec, Role


def spec(**fields: Any) -> JobSpec:
    return JobSpec(**{"command": ["train"], "cwd": "/", "name": "job", **fields})


def shape(made: JobSpec, **options: Any) -> list[tuple[str, int, int, int]]:
    return [(t.name, t.first_rank, t.processes, t.gpus) for t in tasks_of(made, **options)]


@pytest.mark.parametrize(
    ("fields", "options", "tasks"),
    [
        ({}, {}, [("worker-0", 0, 1, 0)]),
        ({"processes": 8, "gpu_per_node": 4}, {"has_gpus": True}, [("worker-0", 0, 4, 4), ("worker-1", 4, 4, 4)]),
        ({"processes": 8}, {"has_gpus": True, "gpu_per_node": 4}, [("worker-0", 0, 4, 4), ("worker-1", 4, 4, 4)]),
        ({"processes": 3, "gpu_per_node": 4}, {"has_gpus": True}, [("worker-0", 0, 3, 3)]),
        ({"processes": 8, "gpu_per_node": 4, "multi_process": False}, {"has_gpus": True},
         [("worker-0", 0, 1, 4), ("worker-1", 1, 1, 4)]),
        ({"processes": 4, "nodes": 2}, {}, [("worker-0", 0, 2, 0), ("worker-1", 2, 2, 0)]),
        ({"nodes": 3}, {}, [("worker-0", 0, 1, 0), ("worker-1", 1, 1, 0), ("worker-2", 2, 1, 0)]),
    ],
)  # fmt: skip
def test_a_count_becomes_nodes_times_processes(
    fields: dict[str, Any], options: dict[str, Any], tasks: list[tuple[str, int, int, int]]
) -> None:
    assert shape(spec(**fields), **options) == tasks
    assert world_size(spec(**fields), tasks_of(spec(**fields), **options)) == sum(
        t[2] for t in tasks
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"processes": 6, "gpu_per_node": 4}, "-n 4 or -n 8"),
        ({"processes": 5, "nodes": 2}, "-n 4 or -n 6"),
        ({"processes": 2, "nodes": 3}, "use -n 3"),
        ({"processes": 8, "nodes": 2, "gpu_per_node": 2}, "4 nodes"),
        ({"processes": 2048}, "1 to 1024"),
        ({"roles": [Role("a", ["x"], 300)]}, "1 to 256"),
    ],
)
def test_an_uneven_count_is_refused_with_the_nearest_valid_ones(
    fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        tasks_of(spec(**fields))
    assert words in f"{caught.value.message} {caught.value.hint}"


def test_helpers_stand_behind_the_world() -> None:
    roles = [
        Role("board", ["b"], completion="none"),
        Role("ps", ["p"]),
        Role("worker", ["w"], 2, processes=2, gpus=2),
    ]
    made = spec(roles=roles)
    tasks = tasks_of(made)
    assert [(t.name, t.first_rank) for t in tasks] == [
        ("ps-0", 0),
        ("worker-0", 1),
        ("worker-1", 3),
        ("board-0", 5),
    ]
    assert world_size(made, tasks) == 5
    assert [(t.role_first_rank, t.role_processes) for t in tasks] == [
        (0, 1),
        (0, 4),
        (2, 4),
        (0, 1),
    ]
    assert tasks[0].argv == ("p",) and [t.node_rank for t in tasks] == [0, 1, 2, 3]


def test_roles_run_without_their_gpus_where_a_cluster_has_none() -> None:
    """As `gpus:` of a job does: it means processes there. What was planned with GPUs keeps them."""
    made = spec(roles=[Role("ps", ["p"]), Role("worker", ["w"], 2, gpus=1)])
    ranks = [("ps-0", 0, 1), ("worker-0", 1, 1), ("worker-1", 2, 1)]
    assert shape(made) == [(*task, 0) for task in ranks]
    kept = [(*task, task[0] != "ps-0") for task in ranks]
    assert shape(made, has_gpus=True) == kept
    made.gpus = 2
    assert shape(made) == kept


@pytest.mark.parametrize(
    ("fields", "gpus", "hint"),
    [
        ({"processes": 4}, 2, "use -n 2 or fewer"),
        ({"roles": [Role("worker", ["w"], 4, gpus=1)]}, 2, "instances, or gpus of a role"),
        ({"processes": 4, "gpus": 4}, 0, "hw resubmit runs it without"),
    ],
)
def test_too_many_gpus_are_refused_with_what_can_be_typed(
    fields: dict[str, Any], gpus: int, hint: str
) -> None:
    made = spec(**fields)
    with pytest.raises(RefusedError, match=f"4 GPUs, this machine has {gpus}") as caught:
        check_machine(
            made, tasks_of(made, has_gpus=gpus > 0), Node("here", 64, None, gpus, "setting")
        )
    assert hint in str(caught.value.hint) and "-n 0" not in str(caught.value.hint)
