"""The table and the plot of `python -m bench`: what a person quotes must be what was measured."""

import json
from pathlib import Path
from xml.etree import ElementTree

from bench import plot, table
from bench.machine import Machine, machine
from bench.measure import interleave
from bench.result import Measure, Result
from bench.table import Report

HERE = Machine("2026-11-15 12:00 UTC", "a processor", 2, 24, "6.1", "3.11.7", "0.1.0", 0.1)


def logging() -> Result:
    result = Result(
        "log of 2 values", "µs", [Measure("headway", [2.0, 1.0, 9.0]), Measure("trackio", [12.0])]
    )
    result.ratio_at_most("trackio", 0.1, "at most a tenth of trackio")
    result.faster_than("trackio", 3, "at least 3 × faster than trackio")
    return result


def test_a_target_is_judged_by_medians() -> None:
    slow, fast = logging().checks
    assert (slow.value, slow.met) == (2 / 12, False)
    assert (fast.value, fast.met) == (6.0, True)


def test_a_target_against_a_peer_that_is_missing_is_not_judged() -> None:
    result = Result("log", "µs", [Measure("headway", [1.0]), Measure("wandb", [], "no wheel")])
    result.faster_than("wandb", 40, "at least 40 × faster than wandb")
    assert result.checks == []


def test_the_table_names_missed_targets_and_missing_peers() -> None:
    result = logging()
    result.measures.append(Measure("wandb", [], "no wheel for this platform"))
    text = table.markdown(
        Report(HERE, [result], missing={"wandb": "no wheel"}, failed={"read": "it broke"})
    )
    assert "1 of 2 targets met" in text
    assert "| log of 2 values | at most a tenth of trackio | 0.167 × | **no** |" in text
    assert "| log of 2 values | at least 3 × faster than trackio | 6.00 × | yes |" in text
    assert "wandb could not be installed: no wheel" in text
    assert "| wandb | – | | | no wheel for this platform |" in text
    assert "the case `read` failed: it broke" in text
    assert HERE.line() in text


def test_a_quick_run_says_that_it_is_one() -> None:
    assert "Not for quoting" in table.markdown(Report(HERE, [logging()], quick=True))
    assert "Not for quoting" not in table.markdown(Report(HERE, [logging()]))


def test_numbers_have_three_digits() -> None:
    shown = [
        table.number(value) for value in (0, 0.00123, 1.234, 45.67, 999.4, 12345.6, float("nan"))
    ]
    assert shown == ["0", "0.00123", "1.23", "45.7", "999", "12,346", "–"]


def test_the_files_hold_every_sample(tmp_path: Path) -> None:
    report = Report(HERE, [logging()])
    table.write(tmp_path, report)
    plot.write(tmp_path, report)
    found = json.loads((tmp_path / "latest.json").read_text())
    assert found["results"][0]["measures"][0]["samples"] == [2.0, 1.0, 9.0]
    assert found["machine"]["cores"] == 2
    root = ElementTree.parse(tmp_path / "latest.svg").getroot()
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert "trackio" in texts and "12.0" in texts


def test_a_plot_escapes_what_it_writes() -> None:
    result = Result("a < b & c", "s", [Measure("<one>", [1.0]), Measure("two", [2.0])])
    assert "a &lt; b &amp; c" in plot.svg(Report(HERE, [result]))


def test_contenders_take_turns() -> None:
    order: list[str] = []
    interleave(3, {name: lambda number, name=name: order.append(name) for name in "abc"})
    assert "".join(order) == "abcbcacab"


def test_the_machine_line_has_no_host_name() -> None:
    import socket

    assert socket.gethostname() not in machine("0.1.0").line()
