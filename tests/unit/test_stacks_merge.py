"""Stacks: read from what Python and py-spy write, merged over ranks, and put into words."""

import json
from typing import Any

import pytest

from headway.agent.observe.stack_parser import is_whole, parse_dump, parse_py_spy
from headway.diagnose.stacks import merge, source_wait, tree, wait_of
from headway.model.rank_set import rank_set, ranks_text

DUMP = """Thread 0x00007f1 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/code/loader.py", line 88 in next_batch

Current thread 0x00007f2 [MainThread] (most recent call first):
  File "/code/a b.py", line 12 in f
  File "/code/train.py", line 40 in <module>
"""
STD = "/usr/lib/python3.11"
TORCH = "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
MODULE = ("/code/train.py", 160, "<module>")
IN_QUEUE = [
    (f"{STD}/threading.py", 327, "wait"), (f"{STD}/queue.py", 171, "get"),
    ("/code/loader.py", 88, "next_batch"), ("/code/train.py", 141, "main"), MODULE,
]  # fmt: skip
IN_REDUCE = [
    (TORCH, 2501, "all_reduce"), (TORCH, 83, "wrapper"), ("/code/train.py", 152, "main"), MODULE,
]  # fmt: skip
ELSEWHERE = [(TORCH, 3001, "broadcast"), ("/code/train.py", 170, "main"), MODULE]


def fact(stacks: dict[int, Any], **more: Any) -> dict[str, Any]:
    """A fact of an agent with these main stacks; a stack that is a dict is a rank without one."""
    frames: dict[tuple[str, int, str], int] = {}
    processes = []
    for rank, stack in stacks.items():
        one: dict[str, Any] = {"rank": rank, "pid": 100 + rank, "lead": True, "launcher": False}
        if isinstance(stack, dict):
            one |= {"threads": [], **stack}
        else:
            numbers = [frames.setdefault(frame, len(frames)) for frame in stack]
            one |= {"threads": [{"name": None, "main": True, "frames": numbers}], "how": "signal"}
        processes.append(one)
    return {"frames": [list(f) for f in frames], "processes": processes, "source": {}, **more}


def test_a_dump_is_read_with_the_main_thread_first() -> None:
    threads = parse_dump(DUMP)
    assert [thread["main"] for thread in threads] == [True, False]
    assert threads[0]["frames"] == [
        ("/code/a b.py", 12, "f"), ("/code/train.py", 40, "<module>"),
    ]  # fmt: skip
    assert threads[1]["frames"][0] == ("/usr/lib/python3.11/threading.py", 327, "wait")


def test_a_dump_that_ends_at_a_module_is_whole_and_a_torn_one_is_not() -> None:
    assert is_whole(DUMP)
    assert not is_whole(DUMP[:-20])
    assert parse_dump("\0\0\0" + DUMP) == parse_dump(DUMP)
    assert parse_dump('rubbish\n  File "x", line 1 in f\n') == []


def test_stacks_of_py_spy_are_read_and_other_text_is_refused() -> None:
    row = {"os_thread_id": 7, "thread_name": "MainThread",
           "frames": [{"name": "f", "filename": "a.py", "line": 3}]}  # fmt: skip
    assert parse_py_spy(json.dumps([row]), 7)[0]["frames"] == [("a.py", 3, "f")]
    for text in ("", "{}", '[{"frames": 1}]', "[3]"):
        with pytest.raises(ValueError):
            if parse_py_spy(text, 7) == []:
                raise ValueError("nothing")


def test_the_majority_waits_and_the_odd_rank_is_named() -> None:
    merged = merge({"worker-0": fact({r: IN_QUEUE if r == 5 else IN_REDUCE for r in range(8)})})
    assert merged.odd == [5]
    assert merged.groups[0].ranks == [5], "the odd one comes first"
    assert merged.verdict == (
        "7 of 8 ranks wait in all_reduce at train.py:152; "
        "rank 5 is in queue.get at loader.py:88: look there"
    )


def test_of_two_ranks_the_one_outside_the_collective_is_odd() -> None:
    assert merge({"w": fact({0: IN_REDUCE, 1: IN_QUEUE})}).odd == [1]


def test_a_rank_in_another_collective_is_odd_and_two_halves_are_a_split() -> None:
    assert merge({"w": fact({0: IN_REDUCE, 1: IN_REDUCE, 2: ELSEWHERE})}).odd == [2]
    merged = merge({"w": fact({0: IN_REDUCE, 1: ELSEWHERE, 2: IN_REDUCE, 3: ELSEWHERE})})
    assert merged.odd == [] and merged.split
    assert "split" in (merged.verdict or "") and "ranks 1,3" in (merged.verdict or "")


def test_a_rank_that_does_not_answer_is_the_odd_one() -> None:
    stopped = {"missing": "it was asked and did not answer", "silent": True, "state": "stopped"}
    merged = merge({"w": fact({0: IN_REDUCE, 1: stopped, 2: IN_REDUCE})})
    assert merged.odd == [1] and [one.rank for one in merged.missing] == [1]
    assert "rank 1 is stopped" in (merged.verdict or "")


def test_a_rank_that_cannot_be_asked_is_missing_and_not_accused() -> None:
    other = {"missing": "not a Python program", "silent": False, "state": "sleeping"}
    merged = merge({"w": fact({0: IN_QUEUE, 1: other, 2: IN_QUEUE})})
    assert merged.odd == [] and [one.rank for one in merged.missing] == [1]


def test_ranks_of_several_tasks_are_merged_and_a_launcher_is_no_rank() -> None:
    second = fact({2: IN_REDUCE, 3: IN_REDUCE})
    second["processes"][0] |= {"launcher": True, "lead": False}
    merged = merge({"worker-0": fact({0: IN_REDUCE, 1: IN_QUEUE}), "worker-1": second})
    assert merged.ranks == [0, 1, 3] and merged.odd == [1]
    assert next(g for g in merged.groups if g.ranks == [0, 3]).tasks == ["worker-0", "worker-1"]


def test_lines_inside_libraries_do_not_make_two_places_of_one() -> None:
    other = [(f"{STD}/threading.py", 331, "wait"), *IN_QUEUE[1:]]
    assert len(merge({"w": fact({0: IN_QUEUE, 1: other})}).groups) == 1
    moved = [*IN_QUEUE[:2], ("/code/loader.py", 90, "next_batch"), *IN_QUEUE[3:]]
    assert len(merge({"w": fact({0: IN_QUEUE, 1: moved})}).groups) == 2


def test_the_tree_forks_where_ranks_went_different_ways() -> None:
    merged = merge({"w": fact({0: IN_REDUCE, 1: IN_QUEUE, 2: IN_REDUCE})})
    (root,) = tree(merged.groups)
    assert (root.function, root.ranks) == ("<module>", "0-2")
    assert [node.ranks for node in root.below] == ["1", "0,2"]
    leaf = root.below[0].below[0].below[0].below[0]
    assert leaf.waits == "queue.get"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("comm.Allreduce(a, b)", "collective"), ("x = comm.bcast(x, root=0)", "collective"),
        ("dist.barrier()", "collective"), ("with lock:", "lock"), ("lock.acquire()", "lock"),
        ("fcntl.flock(f, fcntl.LOCK_EX)", "lock"), ("time.sleep(0.1)", "sleep"),
        ("data = os.read(fd, 10)", "read"), ("t.join()", "join"), ("loss.item()", "device"),
        ("event.wait()", "event"), ("work.wait()", "collective"), ("item = queue.get()", "queue"),
        ("y = model(x) + bias", None), ("parts = ', '.join(names)", None),
    ],
)  # fmt: skip
def test_a_line_that_calls_into_c_tells_what_it_waits_in(line: str, kind: str | None) -> None:
    found = source_wait(line)
    assert (found[0] if found else None) == kind


def test_a_collective_counts_more_than_what_it_is_made_of() -> None:
    stack = [(f"{STD}/threading.py", 327, "wait"), (TORCH, 2501, "all_reduce"), MODULE]
    assert wait_of(stack, None) == ("collective", "all_reduce")
    assert wait_of([MODULE], "x = compute(y)") is None


def test_rank_sets_are_written_as_people_do() -> None:
    assert rank_set([7, 0, 1, 2, 4, 5, 6]) == "0-2,4-7" and rank_set([]) == ""
    assert ranks_text([3]) == "rank 3"
    assert ranks_text(range(0, 100, 2)).endswith("and more (50 in all)")


def test_ten_thousand_stacks_are_merged_into_their_few_groups() -> None:
    merged = merge({"w": fact({r: IN_QUEUE if r == 77 else IN_REDUCE for r in range(10_000)})})
    assert merged.odd == [77] and len(merged.groups) == 2
