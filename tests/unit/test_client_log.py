"""`log`: what is passed in is what lies in the stream, and whatever it is given, it neither raises
nor loses count.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.client import metric
from headway.client.run import Run
from headway.model.limits import METRIC_NAME_BYTES_MAX, METRIC_NAMES_MAX, STEP_ABS_MAX
from tests import streams
from tests.client_bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "spool")
    yield bench
    bench.run.end(None)


def test_what_was_logged_is_read_back_in_order(bench: Bench) -> None:
    for i in range(100):
        bench.log({"loss": i / 7, "lr": 1e-3}, step=i)
    found = streams.points(bench.folder)
    assert [(p.name, p.step, p.value) for p in found] == [
        pair for i in range(100) for pair in (("loss", i, i / 7), ("lr", i, 1e-3))
    ]
    assert bench.counters() == {"produced": 200, "written": 200, "rejected": 0, "dropped": 0}


class Tensor:
    """As torch's: one element, item(), numel() and a float; a dtype without NumPy's `kind`."""

    dtype = "torch.float32"

    def __init__(self, *values: float) -> None:
        self.values = values
        self.shape = () if len(values) == 1 else (len(values),)

    def numel(self) -> int:
        return len(self.values)

    def item(self) -> float:
        if len(self.values) != 1:
            raise RuntimeError("a Tensor with several elements cannot be converted to Scalar")
        return self.values[0]

    def __float__(self) -> float:
        return float(self.item())


GOOD: list[tuple[Any, float]] = [
    (1, 1.0), (-3, -3.0), (0.5, 0.5), (True, 1.0), (Decimal("0.25"), 0.25), (Fraction(1, 4), 0.25),
    (np.float32(0.5), 0.5), (np.float64(0.1), 0.1), (np.float16(2), 2.0), (np.int8(-4), -4.0), (np.uint64(7), 7.0),
    (np.bool_(True), 1.0), (np.array(3.5), 3.5), (np.array([[2.5]]), 2.5), (Tensor(1.5), 1.5), (1e308, 1e308),
    (math.inf, math.inf), (-math.inf, -math.inf), (2**53, 2.0**53), (2**60, 2.0**60), (2**1000, 2.0**1000),
    (-0.0, -0.0),
]  # fmt: skip
BAD: list[Any] = [
    None, "1.5", b"1", [1.0], (1,), {1}, np.array([1.0, 2.0]), np.array([]), np.str_("3"), 1j, np.complex64(1j),
    object(), Tensor(1, 2), 10**400, Fraction(10**400), Decimal("sNaN"), np.datetime64("2024-01-01"),
    np.timedelta64(3, "s"), print, 10**5000,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")
@pytest.mark.parametrize("first", [True, False], ids=["first call", "later call"])
@pytest.mark.parametrize(
    ("value", "number"), GOOD, ids=[f"{type(v).__name__}-{n!r:.12}" for v, n in GOOD]
)
def test_one_number_of_any_make_is_kept(
    bench: Bench, value: object, number: float, first: bool
) -> None:
    """B1–B3."""
    if not first:
        bench.log({"x": 0.0})
    bench.log({"x": value})
    assert bench.values("x")[-1] == number
    assert math.copysign(1, bench.values("x")[-1]) == math.copysign(1, number)
    assert bench.counters()["rejected"] == 0


@pytest.mark.parametrize("first", [True, False], ids=["first call", "later call"])
@pytest.mark.parametrize("value", [math.nan, np.float32("nan"), Decimal("NaN"), Tensor(math.nan)])
def test_nan_stays_nan(bench: Bench, value: object, first: bool) -> None:
    """B1."""
    if not first:
        bench.log({"x": 0.0})
    bench.log({"x": value})
    assert math.isnan(bench.values("x")[-1]) and bench.counters()["rejected"] == 0


@pytest.mark.parametrize("value", BAD, ids=[f"{type(v).__name__}-{i}" for i, v in enumerate(BAD)])
def test_what_is_no_number_is_refused_once_by_name_and_the_rest_is_kept(
    bench: Bench, value: object
) -> None:
    """B4."""
    for i in range(3):
        bench.log({"before": i, "bad": value, "after": i})
    assert bench.values("before") == bench.values("after") == [0, 1, 2]
    assert bench.values("bad") == []
    assert bench.counters()["rejected"] == 3
    assert (
        len(bench.warned) == 1
        and "'bad'" in bench.warned[0]
        and bench.warned[0].startswith("headway: ")
    )
    assert [n["text"] for n in streams.facts(bench.folder, "note")] == [
        bench.warned[0].removeprefix("headway: ")
    ]


@pytest.mark.parametrize("value", BAD, ids=[f"{type(v).__name__}-{i}" for i, v in enumerate(BAD)])
def test_what_is_no_number_is_refused_under_a_known_name_too(bench: Bench, value: object) -> None:
    bench.log({"x": 1.0})
    bench.log({"x": value})
    bench.log({"x": 2.0})
    assert bench.values("x") == [1.0, 2.0] and bench.counters()["rejected"] == 1


def test_integers_that_no_float_equals_are_kept_as_the_nearest_with_one_note(bench: Bench) -> None:
    """B2."""
    for i in range(3):
        bench.log({"tokens": 2**53 + 1, "even": 2**60}, step=i)
    assert bench.values("tokens") == [2.0**53] * 3
    assert len(bench.warned) == 1 and "'tokens'" in bench.warned[0] and "nearest" in bench.warned[0]


@pytest.mark.parametrize(
    "name",
    ["", "a\nb", "tab\t", "\x00", "\x1b[31m", "\x9b", "x" * (METRIC_NAME_BYTES_MAX + 1), "é" * 200, "\x7f", 3, None,
     (1,), b"x", 1.5],
)  # fmt: skip
def test_a_name_that_cannot_be_kept_costs_only_its_own_value(bench: Bench, name: object) -> None:
    """B7, B10."""
    bench.log({name: 1.0, "good": 2.0})
    bench.log({name: 1.0, "good": 2.0})
    assert bench.values("good") == [2.0, 2.0]
    assert bench.counters()["rejected"] == 2
    assert len(bench.warned) == 1 and "\n" not in bench.warned[0] and "\x1b" not in bench.warned[0]


@pytest.mark.parametrize(
    "name",
    [
        "a/b",
        "..",
        "__proto__",
        "loss é",
        "日本",
        "😀",
        "x" * METRIC_NAME_BYTES_MAX,
        "<img onerror>",
        "a b",
    ],
)
def test_odd_but_printable_names_are_kept_as_they_are(bench: Bench, name: str) -> None:
    """B10, B18."""
    bench.log({name: 1.0})
    assert bench.values(name) == [1.0] and not bench.warned


def test_lone_surrogates_in_a_name_are_replaced(bench: Bench) -> None:
    """B6."""
    bench.log({"a\ud800b": 1.0})
    bench.log({"a\ud800b": 2.0})
    assert bench.values("a\ufffdb") == [1.0, 2.0]
    bench.log({chr(0xD800): 1, chr(0xDC01): 2})  # the same name once cleaned
    assert bench.values("\ufffd") == [2.0] and bench.counters()["rejected"] == 1


def test_nested_dictionaries_become_paths(bench: Bench) -> None:
    bench.log({"train": {"loss": 1.0, "acc": {"top1": 2.0}}, "lr": 3.0, "empty": {}})
    assert {p.name: p.value for p in streams.points(bench.folder)} == {
        "train/loss": 1.0,
        "train/acc/top1": 2.0,
        "lr": 3.0,
    }


def test_a_dictionary_that_contains_itself_ends(bench: Bench) -> None:
    cyclic: dict[str, Any] = {"x": 1.0}
    for i in range(50):
        cyclic[f"again{i}"] = cyclic
    began = time.monotonic()
    bench.log(cyclic)
    assert time.monotonic() - began < 30
    assert bench.values("x") == [1.0] and bench.counters()["rejected"] > 0


@pytest.mark.parametrize("values", [None, 3, "loss", [("a", 1)], {1.0}, object(), np.array([1.0])])
def test_a_call_without_a_dictionary_is_refused_and_counted(bench: Bench, values: object) -> None:
    bench.log(values)
    assert bench.counters()["rejected"] == 1 and len(bench.warned) == 1


def test_an_empty_call_writes_nothing(bench: Bench) -> None:
    bench.log({})
    assert bench.counters()["produced"] == 0 and not bench.warned


class Hostile(dict[str, Any]):
    def values(self) -> Any:
        raise RuntimeError("no values for you")

    def __getitem__(self, key: str) -> Any:
        raise ZeroDivisionError("nor items")

    def keys(self) -> Any:
        raise KeyError("nor keys")


class HostileNumber:
    def __float__(self) -> float:
        raise RuntimeError("CUDA error: device-side assert triggered")

    def __getattr__(self, name: str) -> Any:
        raise ValueError(f"no {name}")


def test_objects_that_raise_when_looked_at_do_not_raise_into_training(bench: Bench) -> None:
    """P1."""
    bench.log(Hostile(a=1))
    bench.log({"x": HostileNumber(), "y": 1.0})
    bench.log({"y": HostileNumber()})
    assert bench.values("y") == [1.0]
    assert bench.counters()["rejected"] == 3


# -- steps


def test_without_a_step_it_counts_on_from_the_largest(bench: Bench) -> None:
    """B12."""
    for step in (None, None, 10, None, 3, None, -5, None):
        bench.log({"x": 1}, step=step)
    assert bench.steps() == [0, 1, 10, 11, 3, 12, -5, 13]


@pytest.mark.parametrize(
    ("step", "kept"),
    [(True, 1), (2.0, 2), (np.int32(7), 7), (np.uint8(255), 255), (np.array(4), 4), (np.float64(5.0), 5), (-3, -3),
     (STEP_ABS_MAX, STEP_ABS_MAX), (-STEP_ABS_MAX, -STEP_ABS_MAX), (2**60, 2**60), (0, 0)],
)  # fmt: skip
@pytest.mark.parametrize("first", [True, False], ids=["first call", "later call"])
def test_an_integral_step_of_any_make_is_kept(
    bench: Bench, step: Any, kept: int, first: bool
) -> None:
    """B12."""
    if not first:
        bench.log({"x": 1}, step=0)
    bench.log({"x": 1}, step=step)
    bench.log({"x": 1})
    assert bench.steps()[-2:] == [kept, max(kept, -1 if first else 0) + 1] or kept == STEP_ABS_MAX


@pytest.mark.parametrize(
    "step",
    [
        1.5,
        math.nan,
        math.inf,
        "3",
        b"3",
        [1],
        np.array([1, 2]),
        STEP_ABS_MAX + 1,
        -(2**63),
        10**30,
        1j,
        object(),
    ],
)
def test_a_step_that_is_no_integer_refuses_the_call_and_is_told_once(
    bench: Bench, step: Any
) -> None:
    """B12, B13."""
    bench.log({"x": 1, "y": 2}, step=step)
    bench.log({"x": 1, "y": 2}, step=5)
    bench.log({"x": 1, "y": 2}, step=step)
    assert bench.steps() == [5, 5]
    assert bench.counters() == {"produced": 6, "written": 2, "rejected": 4, "dropped": 0}
    assert len(bench.warned) == 1 and "step" in bench.warned[0]


def test_repeated_and_backward_steps_are_kept_as_written(bench: Bench) -> None:
    """B12."""
    for step in (5, 5, 4, 4, 100, 1):
        bench.log({"x": 1}, step=step)
    assert bench.steps() == [5, 5, 4, 4, 100, 1] and not bench.warned


# -- many names, many values


def test_too_many_names_are_refused_and_the_known_ones_go_on(bench: Bench) -> None:
    """B11."""
    names = [f"m{i}" for i in range(METRIC_NAMES_MAX + 50)]
    for start in range(0, len(names), 1000):
        bench.log(dict.fromkeys(names[start : start + 1000], 1.0))
    bench.log({"m0": 2.0, "new": 1.0})
    assert len({p.name for p in streams.points(bench.folder)}) == METRIC_NAMES_MAX
    assert bench.values("m0") == [1.0, 2.0]
    assert bench.counters()["rejected"] == 51
    assert len(bench.warned) == 1 and str(METRIC_NAMES_MAX) in bench.warned[0]


def test_a_call_with_very_many_long_names_is_split_and_nothing_is_lost(bench: Bench) -> None:
    values = {f"{'é' * 120}{i:05}": float(i) for i in range(9000)}
    bench.log(values, step=3)
    found = streams.points(bench.folder)
    assert {p.name: p.value for p in found} == values and {p.step for p in found} == {3}


def test_a_segment_with_too_many_schemas_is_followed_by_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric, "SCHEMAS_MAX", 5)
    for i in range(23):
        bench.log({f"m{i}": float(i), "x": 0.0})
    assert [s.segment for s in streams.streams(bench.folder, "metrics")] == [0, 1, 2, 3, 4]
    assert [p.value for p in streams.points(bench.folder) if p.name != "x"] == [
        float(i) for i in range(23)
    ]
    assert bench.counters()["written"] == 46


def test_a_full_segment_is_followed_by_another_which_is_complete_in_itself(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric, "SEGMENT_BYTES_MAX", 300_000)
    values = {f"m{i}": float(i) for i in range(100)}
    for i in range(2000):
        bench.log(values, step=i)
    sizes = [
        (bench.folder / s.name).stat().st_size for s in streams.streams(bench.folder, "metrics")
    ]
    assert len(sizes) >= 4 and max(sizes) < 300_000 + 256 * 1024
    assert [p.step for p in streams.points(bench.folder) if p.name == "m7"] == list(range(2000))
    assert bench.counters()["written"] == 200_000


def test_descriptors_of_rolled_segments_are_closed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric, "SCHEMAS_MAX", 1)
    monkeypatch.setattr(metric, "SEGMENTS_RETIRED_MAX", 3)
    monkeypatch.setattr(metric, "LOOK_INTERVAL_NS", 0)
    before = len(os.listdir("/proc/self/fd"))
    for i in range(60):
        bench.log({f"m{i % 40}": 1.0})
    assert len(os.listdir("/proc/self/fd")) <= before + 6
    assert bench.counters()["written"] == 60
    bench.run.end(None)
    assert len(os.listdir("/proc/self/fd")) == before


# -- everything at once

NAMES = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["loss", "lr", "a/b", "\ud800", "", "x\ny"]),
    st.integers(),
    st.none(),
)
NUMBERS = st.one_of(
    st.floats(),
    st.integers(),
    st.booleans(),
    st.decimals(),
    st.fractions(),
    st.sampled_from([v for v, _ in GOOD if not isinstance(v, np.ndarray)]),
)
# hypothesis cannot print the last one
LEAVES = st.one_of(NUMBERS, st.sampled_from(BAD[:-1]), st.text(max_size=5))
VALUES = st.recursive(
    st.dictionaries(NAMES, LEAVES, max_size=5),
    lambda inner: st.dictionaries(NAMES, st.one_of(LEAVES, inner), max_size=4),
    max_leaves=8,
)
STEPS = st.one_of(st.none(), st.integers(), st.floats(), st.booleans(), st.text(max_size=2))


@settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(st.tuples(st.one_of(VALUES, LEAVES), STEPS), max_size=12))
def test_nothing_that_is_logged_raises_or_gets_lost_uncounted(
    tmp_path: Path, calls: list[tuple[Any, Any]]
) -> None:
    """B1–B12: whatever the calls, every value is written or counted, and the stream is whole."""
    bench = Bench(tmp_path / os.urandom(8).hex())
    for values, step in calls:
        bench.log(values, step)
    counters = bench.counters()
    assert counters["dropped"] == 0
    expected = sum(_leaves(values) for values, _ in calls)
    assert counters["produced"] == expected
    bench.run.end(0)
    for told in streams.facts(bench.folder, "counters"):
        assert {key: told[key] for key in counters} == counters


def _leaves(values: Any, depth: int = 1) -> int:
    """What counts as a value: a leaf, a dictionary under a name that is refused or too deep, a
    non-dictionary.
    """
    if not isinstance(values, dict):
        return 1
    total = 0
    for key, value in values.items():
        named = (
            isinstance(key, str)
            and key != ""
            and not any(ch < " " or "\x7f" <= ch <= "\x9f" for ch in key)
        )
        total += _leaves(value, depth + 1) if isinstance(value, dict) and named and depth < 8 else 1
    return total


# -- threads


def test_threads_that_log_at_once_lose_nothing_and_mix_no_bytes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric, "SEGMENT_BYTES_MAX", 200_000)
    monkeypatch.setattr(metric, "CLOSE_AFTER_S", 0.0)
    start = threading.Barrier(8)

    def work(me: int) -> None:
        start.wait()
        for i in range(1500):
            bench.log({f"t{me}": float(i), "all": 1.0, f"extra{i % 7}": 0.0}, step=i)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for me in range(8):
        assert sorted(bench.values(f"t{me}")) == [float(i) for i in range(1500)]
    assert bench.counters() == {"produced": 36_000, "written": 36_000, "rejected": 0, "dropped": 0}


def test_steps_counted_for_many_threads_are_all_different(bench: Bench) -> None:
    threads = [
        threading.Thread(target=lambda: [bench.log({"x": 1}) for _ in range(500)]) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(bench.steps()) == list(range(3000))


def test_log_called_while_it_logs_does_not_deadlock(bench: Bench) -> None:
    """As from a signal handler or a destructor that comes in between, at every place that calls
    out.
    """

    class Nested:
        def __float__(self) -> float:
            bench.log({"inner": 1.0, f"new{len(bench.warned)}": 2.0})
            return 1.0

    bench.log({"outer": Nested()})
    bench.log({"outer": 0.0})
    bench.log({"outer": Nested()})
    assert bench.values("inner") and bench.values("outer") == [1.0, 0.0, 1.0]


def test_disabled_means_no_file_and_no_word(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    (folder / "task.json").write_text("{}")
    warned: list[str] = []
    run = Run({"HEADWAY_SPOOL": str(folder), "HEADWAY_DISABLED": "1"}, warn=warned.append)
    run.log({"x": "text", "y": 1.0})
    run.init({"a": 1}, ["t"], "name", None)
    run.config["b"] = 2
    run.exception("main", ValueError("x"))
    run.end(0)
    assert [p.name for p in folder.iterdir()] == ["task.json"] and not warned
    assert run.config["b"] == 2


def test_a_finished_run_that_logs_again_starts_new_streams(bench: Bench) -> None:
    bench.log({"x": 1.0})
    bench.run.end(0)
    bench.log({"x": 2.0})
    bench.run.end(3)
    assert len(streams.streams(bench.folder, "facts")) == 2
    byes = [f["exit_code"] for f in streams.facts(bench.folder, "bye")]
    assert sorted(byes) == [0, 3] and sorted(bench.values("x")) == [1.0, 2.0]
    assert all(f["written"] == 1 for f in streams.facts(bench.folder, "counters"))


def test_a_finish_without_a_code_leaves_the_goodbye_to_the_end_of_the_process(bench: Bench) -> None:
    bench.log({"x": 1.0})
    bench.run.finish()
    bench.run.finish()
    assert (
        streams.facts(bench.folder, "bye") == []
        and streams.facts(bench.folder, "counters")[-1]["written"] == 1
    )
    bench.log({"x": 2.0})
    assert [s.segment for s in streams.streams(bench.folder, "metrics")] == [0, 1]
    bench.run.end(4)
    assert bench.values("x") == [1.0, 2.0] and [
        f["exit_code"] for f in streams.facts(bench.folder, "bye")
    ] == [4]
    assert streams.facts(bench.folder, "counters")[-1]["written"] == 2


def test_files_of_the_client_are_private_whatever_the_umask(bench: Bench) -> None:
    """B33."""
    before = os.umask(0)
    try:
        bench.log({"x": 1.0})
    finally:
        os.umask(before)
    for stream in [
        *streams.streams(bench.folder, "facts"),
        *streams.streams(bench.folder, "metrics"),
    ]:
        assert (bench.folder / stream.name).stat().st_mode & 0o777 == 0o600


def test_a_flush_that_is_durable_syncs_both_streams(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P2."""
    synced: list[int] = []
    real: Callable[[int], None] = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(fd), real(fd))[1])
    bench.log({"x": 1.0})
    bench.run.flush(durable=False)
    assert synced == []
    bench.run.flush(durable=True)
    assert len(synced) == 2


def test_refused_points_are_told_with_their_number_while_it_runs_and_at_its_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P5. The pauses between two facts double: calls that go wrong for days make a few of them."""
    now_s = [1000.0]
    monkeypatch.setattr("headway.client.metric.time.monotonic", lambda: now_s[0])
    for number in range(1000):
        bench.log({"loss": 1.0}, step=number / 2)  # type: ignore[arg-type]
        now_s[0] += 0.1
    told = [fact["rejected"] for fact in streams.facts(bench.folder, "counters")]
    assert told == sorted(told) and 0 < told[0] and len(told) == 6
    bench.run.end(0)
    last = streams.facts(bench.folder, "counters")[-1]
    assert (last["pid"], last["rejected"], last["produced"]) == (os.getpid(), 500, 1000)
    assert len([text for text in bench.warned if "because of its step" in text]) == 1
