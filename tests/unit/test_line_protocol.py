"""InfluxDB's line protocol: what its clients write is read as metrics, and what is wrong is told."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.agent.observe import line_listener
from headway.agent.observe.line_listener import LineListener, Prepared, holder_of
from headway.wire.line_protocol import Steps, parse
from tests import streams


@pytest.mark.parametrize(
    ("text", "values", "step", "time_ns"),
    [
        ("loss value=0.5", {"loss": 0.5}, None, None),
        (
            "loss value=0.5,iteration=3i 1700000000000000000",
            {"loss": 0.5},
            3,
            1_700_000_000_000_000_000,
        ),
        ("m a=1,b=2i,c=t,d=F", {"m/a": 1.0, "m/b": 2.0, "m/c": 1.0, "m/d": 0.0}, None, None),
        ("loss,split=val,host=a value=1", {"loss{host=a,split=val}": 1.0}, None, None),
        (r'my\ loss,k=a\,b value=1,note="x, y=z",step=2', {"my loss{k=a_b}": 1.0}, 2, None),
        ('only text="no number"', {}, None, None),
        ("x value=nan", {"x": float("nan")}, None, None),
    ],
)
def test_a_line_becomes_points(
    text: str, values: dict[str, float], step: int | None, time_ns: int | None
) -> None:
    line = parse(text)
    assert repr(line.values) == repr(values) and (line.step, line.time_ns) == (step, time_ns)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "x 1",
        "x value=",
        "x =1",
        "x value=abc",
        ",a=b value=1",
        "x,a value=1",
        "x value=1 noon",
        "x y z w",
    ],
)
def test_a_bad_line_says_what_is_wrong(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(text)


def test_the_tag_that_names_the_job_parts_no_series() -> None:
    line = parse("loss,job=abc,split=val value=1", apart=("job",))
    assert line.values == {"loss{split=val}": 1.0} and line.tags["job"] == "abc"


def test_steps_that_are_not_said_count_on_for_each_name() -> None:
    steps = Steps()
    texts = ["a value=1", "a value=1", "b value=1", "a value=1,step=10", "a value=1"]
    assert [steps.of(parse(text)) for text in texts] == [0, 1, 0, 10, 11]


@pytest.fixture
def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def listener(folder: Path, port: int, note: Callable[[str], None]) -> LineListener:
    (folder / "task.json").write_text("{}")
    return LineListener(str(folder), 0, Prepared(("127.0.0.1", port)), lambda text: None, note)


def test_what_comes_by_udp_is_kept_and_bad_lines_are_counted(
    tmp_path: Path, free_port: int
) -> None:
    notes: list[str] = []
    one = listener(tmp_path, free_port, notes.append)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for i in range(500):
            sender.sendto(
                f"loss,split=a value={i}\nacc value=1\n".encode(), ("127.0.0.1", free_port)
            )
        sender.sendto(b"rubbish\n\xff\xfe", ("127.0.0.1", free_port))
    one.close()
    found = streams.points(tmp_path)
    assert [p.value for p in found if p.name == "loss{split=a}"] == [float(i) for i in range(500)]
    assert [p.step for p in found if p.name == "acc"] == list(range(500))
    assert one.bad == 2 and "2 of 1002 lines" in notes[0]


def test_a_port_that_is_taken_is_told_with_who_has_it(tmp_path: Path, free_port: int) -> None:
    notes: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", free_port))
        assert f"pid {os.getpid()} " in holder_of(free_port)
        listener(tmp_path, free_port, notes.append).close()
    assert f"udp://127.0.0.1:{free_port} is taken by pid {os.getpid()}" in notes[0]


def test_the_address_may_be_named_but_not_of_another_machine() -> None:
    assert line_listener.address_of("1") == ("127.0.0.1", 8092)
    assert line_listener.address_of("localhost:9000") == ("127.0.0.1", 9000)
    assert line_listener.address_of("0.0.0.0:9000") == ("127.0.0.1", 8092)
    assert line_listener.address_of("0") is None
