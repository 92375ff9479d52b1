"""The config: whatever a person passes, plain bounded data comes out, masked, and training goes on
(B14, 27, 52).
"""

import argparse
import collections
import dataclasses
import enum
import json
import math
import pathlib
import time
import types
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.client.config_plain import plain
from headway.model.limits import (
    CONFIG_BYTES_MAX,
    CONFIG_DEPTH_MAX,
    CONFIG_ITEMS_MAX,
    CONFIG_STRING_CHARS_MAX,
    FRAME_BYTES_MAX,
)
from tests import streams
from tests.client_bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(
        tmp_path / "spool", environ={"MY_TOKEN": "tok-12345678", "LAB_PASS": "swordfish-1"}
    )
    yield bench
    bench.run.end(None)


def told(bench: Bench) -> list[Any]:
    return [fact["config"] for fact in streams.facts(bench.folder, "config")]


def test_every_change_is_written_down_whole(bench: Bench) -> None:
    config = bench.run.config
    bench.run.init({"lr": 0.1, "model": {"depth": 3}}, None, None, None)
    config["lr"] = 0.2
    config.update({"a": 1}, b=2)
    config.setdefault("c", 3)
    del config["a"]
    assert told(bench) == [
        {"lr": 0.1, "model": {"depth": 3}},
        {"lr": 0.2, "model": {"depth": 3}},
        {"lr": 0.2, "model": {"depth": 3}, "a": 1, "b": 2},
        {"lr": 0.2, "model": {"depth": 3}, "a": 1, "b": 2, "c": 3},
        {"lr": 0.2, "model": {"depth": 3}, "b": 2, "c": 3},
    ]
    assert dict(config) == {"lr": 0.2, "model": {"depth": 3}, "b": 2, "c": 3}
    assert config["lr"] == 0.2 and config.get("none") is None and "b" in config and len(config) == 4


def test_a_change_inside_a_value_is_told_at_the_end(bench: Bench) -> None:
    bench.run.init({"model": {"depth": 3}}, None, None, None)
    bench.run.config["model"]["depth"] = 4
    bench.run.end(0)
    assert told(bench)[-1] == {"model": {"depth": 4}}


def test_setting_the_same_again_writes_nothing(bench: Bench) -> None:
    for _ in range(50):
        bench.run.config["lr"] = 0.1
    assert told(bench) == [{"lr": 0.1}]


def test_a_config_that_changes_all_the_time_does_not_fill_the_disk(bench: Bench) -> None:
    """P7."""
    for i in range(5000):
        bench.run.config["i"] = i
    assert len(told(bench)) < 250
    bench.run.end(0)
    assert told(bench)[-1] == {"i": 4999}


def test_keys_never_hide_methods(bench: Bench) -> None:
    bench.run.config.update({"update": 1, "keys": 2, "items": 3})
    bench.run.config.update(x=1)
    assert bench.run.config["update"] == 1 and not hasattr(bench.run.config, "x")


def test_secrets_are_masked_before_the_spool(bench: Bench) -> None:
    """52, P14."""
    long = "x" * (CONFIG_STRING_CHARS_MAX - 10) + "tok-12345678"  # the cut goes through the secret
    bench.run.init(
        {"api_key": "abcdefgh1", "nested": [{"password": 12345678}], "note": "uses tok-12345678", "lab": "swordfish-1",
         "long": long, "url": "https://user:secretpw@host/x", "max_tokens": 5, "tok-12345678": 1},
        ["tok-12345678"], None, None,
    )  # fmt: skip
    bench.run.note("x", "about tok-12345678")
    raw = b"".join(
        (bench.folder / s.name).read_bytes() for s in streams.streams(bench.folder, "facts")
    )
    for secret in (b"tok-", b"swordfish", b"abcdefgh1", b"secretpw"):
        assert secret not in raw
    assert told(bench)[0]["max_tokens"] == 5
    assert all("tok-1234" not in text for text in bench.warned)


# -- conversion


class Colour(enum.Enum):
    RED = 1
    BLUE = (1, 2)


class Size(enum.IntEnum):
    BIG = 7


@dataclasses.dataclass
class Optimizer:
    name: str = "adam"
    betas: tuple[float, float] = (0.9, 0.99)
    extra: Any = dataclasses.field(default_factory=dict)


OPTIMIZER = {"name": "sgd", "betas": [0.9, 0.99], "extra": {}}
Pair = collections.namedtuple("Pair", "left right")


class Tensor:
    shape = (3, 4)
    dtype = "torch.float32"


class DictConfig:
    """As OmegaConf's: keys, items, and values that may be missing."""

    def keys(self) -> list[str]:
        return ["lr", "data"]

    def __getitem__(self, key: str) -> Any:
        if key == "data":
            raise RuntimeError("Missing mandatory value: data")
        return 0.1


class ListConfig:
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return [5, 6][index]

    def __iter__(self) -> Iterator[int]:
        return iter([5, 6])


PLAIN: list[tuple[Any, Any]] = [
    (None, None), (True, True), (1, 1), (1.5, 1.5), ("text", "text"), (math.nan, "NaN"), (math.inf, "Infinity"),
    (-math.inf, "-Infinity"), (2**63 - 1, 2**63 - 1), (2**63, str(2**63)), (10**5000, "<int of 16610 bits>"),
    (np.float32(0.5), 0.5), (np.int64(3), 3), (np.bool_(True), True), (np.float64("nan"), "NaN"), (np.array(3), 3),
    (np.str_("s"), "s"), (Decimal("1.10"), "1.10"), (pathlib.Path("/a/b"), "/a/b"), (1j, "1j"), (b"abc", "<3 bytes>"),
    (Colour.RED, 1), (Colour.BLUE, "BLUE"), (Size.BIG, 7), (Optimizer(), OPTIMIZER | {"name": "adam"}),
    (argparse.Namespace(a=1, b=[2]), {"a": 1, "b": [2]}), (types.SimpleNamespace(x=1), {"x": 1}),
    (Pair(1, "r"), {"left": 1, "right": "r"}), ({1: "a", None: 2, 2.5: 3}, {"1": "a", "None": 2, "2.5": 3}),
    ((1, (2,)), [1, [2]]), ({"b", "a"}, ["a", "b"]), (range(3), "range(0, 3)"), (collections.deque([1, 2]), [1, 2]),
    (int, "builtins.int"), (math.sqrt, "math.sqrt"), (Tensor(), f"<{__name__}.Tensor of shape (3, 4), torch.float32>"),
    (np.zeros((2, 3), "float32"), "<numpy.ndarray of shape (2, 3), float32>"),
    (DictConfig(), {"lr": 0.1, "data": "<RuntimeError>"}), (ListConfig(), [5, 6]), ("a\ud800", "a\ufffd"),
    (collections.OrderedDict(a=1), {"a": 1}), ("\x00\x1b[2J", "\x00\x1b[2J"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "expected"), PLAIN, ids=[f"{type(v).__name__}-{i}" for i, (v, _) in enumerate(PLAIN)]
)
def test_what_people_put_into_configs_becomes_plain(value: object, expected: object) -> None:
    converted, whole = plain(value)
    assert converted == expected and whole
    json.dumps(converted, allow_nan=False)


class NoRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__


class EndlessRepr:
    def __repr__(self) -> str:
        while True:
            time.sleep(1)

    __str__ = __repr__


class EndlessMapping(collections.UserDict[str, Any]):
    def keys(self) -> Any:
        n = 0
        while True:
            yield f"k{n}"
            n += 1

    def __getitem__(self, key: str) -> Any:
        return {"again": self}


class Evil:
    def __getattribute__(self, name: str) -> Any:
        raise ZeroDivisionError(name)


def cycle() -> Any:
    inner: dict[str, Any] = {"n": 1}
    inner["self"] = inner
    inner["list"] = [inner]
    return inner


MISBEHAVING: dict[str, Callable[[], Any]] = {
    "no repr": NoRepr,
    "endless repr": EndlessRepr,
    "endless mapping": EndlessMapping,
    "no attribute can be read": Evil,
    "cycle": cycle,
    "inside others": lambda: {"a": NoRepr(), "b": [EndlessRepr()]},
    "generator": lambda: (i for i in range(3)),
    "iterator": lambda: iter([1]),
    "function": lambda: open,
    "odd key": lambda: {NoRepr(): 1},
    "odd shape": type("Odd", (), {"shape": property(lambda self: 1 / 0)}),
}


@pytest.mark.parametrize("what", MISBEHAVING)
def test_objects_that_misbehave_cost_only_themselves(what: str) -> None:
    """B14."""
    began = time.monotonic()
    converted, _ = plain({"before": 1, "odd": MISBEHAVING[what](), "after": 2})
    assert time.monotonic() - began < 20
    assert converted["before"] == 1
    assert len(json.dumps(converted, allow_nan=False)) <= CONFIG_BYTES_MAX
    json.loads(json.dumps(converted))


def test_looking_at_a_generator_does_not_consume_it() -> None:
    numbers = iter([1, 2, 3])
    plain({"data": numbers})
    assert list(numbers) == [1, 2, 3]


def test_cycles_are_named() -> None:
    assert plain(cycle())[0] == {"n": 1, "self": "<cycle>", "list": ["<cycle>"]}
    shared = {"x": 1}
    assert plain([shared, shared])[0] == [shared, shared]  # twice is no cycle


def test_size_and_depth_are_bounded() -> None:
    """B5, B14."""
    deep: Any = 1
    for _ in range(CONFIG_DEPTH_MAX + 5000):
        deep = [deep]
    values: list[Any] = [
        deep, list(range(CONFIG_ITEMS_MAX * 3)), {str(i): i for i in range(CONFIG_ITEMS_MAX * 3)}, "x" * 50_000_000,
        ["\x01" * 10_000] * 5000, {f"{'é' * 200}{i}": "é" * 1000 for i in range(5000)},
    ]  # fmt: skip
    for value in values:
        converted, whole = plain(value)
        assert not whole
        assert len(json.dumps(converted)) <= CONFIG_BYTES_MAX < FRAME_BYTES_MAX


def test_a_cut_config_is_told_once(bench: Bench) -> None:
    for i in range(3):
        bench.run.config["big"] = "x" * (10**6 + i)
    assert told(bench)[0]["big"].endswith("(1000000 characters)")
    assert len(bench.warned) == 1 and "config" in bench.warned[0]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"a": 1}, {"a": 1}), (argparse.Namespace(lr=1), {"lr": 1}), (Optimizer("sgd"), OPTIMIZER),
        ([("a", 1)], {"a": 1}), (DictConfig(), {"lr": 0.1, "data": "<RuntimeError>"}), (5, {"config": 5}),
        (types.SimpleNamespace(_private=1, a=1), {"_private": 1, "a": 1}), ({}, None), (None, None),
    ],
)  # fmt: skip
def test_init_takes_any_config(bench: Bench, config: Any, expected: Any) -> None:
    bench.run.init(config, None, None, None)
    assert (told(bench) or [None])[-1] == expected


def test_init_with_a_config_that_raises_does_not_raise(bench: Bench) -> None:
    """P1."""
    bench.run.init(Evil(), None, None, None)
    bench.run.init({"endless": EndlessMapping()}, None, None, None)
    bench.run.config.clear()
    bench.run.config.update(EvilMapping(), fine=1)
    assert told(bench)[-1] == {"fine": 1} and bench.warned


def test_a_mapping_without_end_is_taken_up_to_the_limit(bench: Bench) -> None:
    bench.run.init(EndlessMapping(), None, None, None)
    assert len(bench.run.config) == CONFIG_ITEMS_MAX


class EvilMapping:
    def keys(self) -> Any:
        raise ZeroDivisionError


JSONISH = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.decimals()
    | st.complex_numbers(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.integers() | st.none(), inner)
        | st.tuples(inner, inner)
    ),
    max_leaves=30,
)


@given(JSONISH)
def test_anything_becomes_json_that_is_read_back_equal(value: Any) -> None:
    """B1–B9, B14."""
    converted, _ = plain(value)
    text = json.dumps(converted, allow_nan=False)
    assert json.loads(text) == converted
    text.encode()
    json.dumps(converted, ensure_ascii=False).encode()  # no lone surrogate is left


# -- tags


def test_tags_are_cleaned_bounded_and_joined(bench: Bench) -> None:
    bench.run.init(None, ["a", "b\n\x1b[2Jc", "x" * 500, "", 3], None, None)
    bench.run.init(None, "single", None, None)
    assert [f["tags"] for f in streams.facts(bench.folder, "tags")] == [
        ["a", "b[2Jc", "x" * 128, "3"], ["a", "b[2Jc", "x" * 128, "3", "single"],
    ]  # fmt: skip


def test_a_name_under_hw_run_is_not_used_and_nothing_is_said(bench: Bench) -> None:
    """A sweep would say it once for each of its jobs."""
    bench.run.init(None, None, "mine", None)
    assert bench.warned == []
