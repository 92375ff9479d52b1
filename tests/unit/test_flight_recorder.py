"""PyTorch's flight recorder: its files are read without running anything that is in them."""

import pickle  # noqa: TID251  (the format of the files that are read here)
import time
from pathlib import Path
from typing import Any

import pytest

from headway.diagnose.flight_recorder import Dump, NoDumpError, is_dump, judge, read

GOLDEN = Path(__file__).parents[1] / "golden" / "flight_recorder"


def entry(number: int, name: str = "nccl:all_reduce", state: str = "completed") -> dict[str, Any]:
    return {
        "collective_seq_id": number, "p2p_seq_id": 0, "process_group": ("0", "default_pg"),
        "profiling_name": name, "input_sizes": [[8]], "state": state, "time_created_ns": number,
        "is_p2p": False, "frames": [],
    }  # fmt: skip


def dump(rank: int, entries: list[dict[str, Any]]) -> Dump:
    data = pickle.dumps({"version": "2.10", "pg_config": {}, "entries": entries}, protocol=2)
    return read(f"nccl_trace_rank_{rank}", data)


def test_dumps_that_pytorch_wrote_name_the_rank_that_calls_another_collective() -> None:
    files = sorted(GOLDEN.iterdir())
    assert all(is_dump(file.read_bytes()[:4096]) for file in files)
    found = judge([read(file.name, file.read_bytes()) for file in files])
    assert found is not None and (found.cause, found.rank) == ("collective_divergence", 2)
    assert "rank 2 calls all_gather [[4]]; ranks 0-1 call all_reduce [[4]]" in found.text


def test_the_rank_that_never_came_is_named_and_the_majority_never_is() -> None:
    done = [entry(n) for n in range(1, 5)]
    waiting = [*done, entry(5, state="started")]
    found = judge([dump(0, waiting), dump(1, done), dump(2, waiting)])
    assert found is not None and (found.cause, found.rank) == ("collective_stall", 1)
    assert found.text == (
        "rank 1 never came to all_reduce number 5 of group 0, in which ranks 0,2 wait"
    )
    assert found.evidence == ["rank 1 last called all_reduce number 4 (completed)"]
    alone = judge([dump(0, waiting), dump(1, done), dump(2, done)])
    assert alone is not None and alone.rank is None
    assert judge([dump(0, done), dump(1, done)]) is None


def test_older_entries_that_a_ring_has_lost_are_no_difference() -> None:
    late = [entry(n) for n in range(3, 9)]
    assert judge([dump(0, [entry(n) for n in range(1, 9)]), dump(1, late)]) is None


class Evil:
    def __reduce__(self) -> Any:
        return time.sleep, (1000,)


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_that_wants_to_run_something_is_refused(protocol: int) -> None:
    with pytest.raises(NoDumpError, match="only plain data"):
        read("trace_0", pickle.dumps({"entries": [Evil()]}, protocol=protocol))
    with pytest.raises(NoDumpError, match="only plain data"):
        read("trace_0", pickle.dumps({"entries": [pytest.fixture]}, protocol=protocol))


def test_damage_is_told_and_never_raised_as_anything_else() -> None:
    data = (GOLDEN / "trace_0").read_bytes()
    for cut in range(0, len(data), 37):
        with pytest.raises(NoDumpError):
            read("trace_0", data[:cut])
    for place in range(0, len(data), 11):
        broken = data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]
        try:
            judge([read("trace_0", broken), read("trace_1", data)])
        except NoDumpError:
            continue
    with pytest.raises(NoDumpError):
        read("trace_0", pickle.dumps([1], protocol=2))
