"""Writes the table of a run: targets first, then every number behind them. Called by `__main__.py`."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.machine import Machine
from bench.result import HEADWAY, Check, Measure, Result


def number(value: float) -> str:
    """Three significant digits, thousands with commas: what a person compares at a glance."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 6)}f}"


@dataclass(frozen=True, slots=True)
class Report:
    """One run: what was measured, and what could not be."""

    machine: Machine
    results: Sequence[Result]
    missing: dict[str, str] = field(default_factory=dict)  # peers that could not be installed
    failed: dict[str, str] = field(default_factory=dict)  # cases that broke
    quick: bool = False


def markdown(report: Report) -> str:
    lines = ["# Headway beside its peers", "", report.machine.line(), ""]
    if report.quick:
        lines += ["**A quick run: fewer repetitions and smaller data. Not for quoting.**", ""]
    met = [check.met for result in report.results for check in result.checks]
    lines += [
        f"{sum(met)} of {len(met)} targets met. Medians of interleaved repetitions in one run.",
        "",
    ]
    lines += [
        f"- {peer} could not be installed: {reason}" for peer, reason in report.missing.items()
    ]
    lines += [f"- the case `{name}` failed: {reason}" for name, reason in report.failed.items()]
    lines += [""] if report.missing or report.failed else []
    lines += [*_targets(report.results), "", "## Every number", "", *_numbers(report.results)]
    return "\n".join(lines).rstrip() + "\n"


def summary(report: Report) -> str:
    """The targets, for a terminal."""
    checks = [(result, check) for result in report.results for check in result.checks]
    lines = [f"{'met ' if c.met else 'MISS'}  {r.what}: {c.text}: {_value(c)}" for r, c in checks]
    lines += [f"FAIL  {name}: {reason}" for name, reason in report.failed.items()]
    lines += [f"      {peer} is missing: {reason}" for peer, reason in report.missing.items()]
    return "\n".join(lines)


def _targets(results: Iterable[Result]) -> list[str]:
    lines = ["| what | target | measured | met |", "| --- | --- | --- | --- |"]
    for result in results:
        for check in result.checks:
            lines.append(
                f"| {result.what} | {check.text} | {_value(check)} | {'yes' if check.met else '**no**'} |"
            )
    return lines


def _value(check: Check) -> str:
    return f"{number(check.value)} {check.unit}".strip()


def _numbers(results: Iterable[Result]) -> list[str]:
    lines: list[str] = []
    for result in results:
        lines += [
            f"### {result.what} ({result.unit})",
            "",
            "| | median | lowest – highest | beside Headway | |",
        ]
        lines += [
            "| --- | --- | --- | --- | --- |",
            *(_row(result, measure) for measure in result.measures),
            "",
        ]
        lines += [f"{note}\n" for note in result.notes]
    return lines


def _row(result: Result, measure: Measure) -> str:
    if not measure.samples:
        return f"| {measure.who} | – | | | {measure.note} |"
    ours = result.median_of(HEADWAY)
    beside = f"{number(measure.median / ours)} ×" if ours else ""
    spread = (
        f"{number(min(measure.samples))} – {number(max(measure.samples))} ({len(measure.samples)})"
    )
    return f"| {measure.who} | {number(measure.median)} | {spread} | {beside} | {measure.note} |"


def as_json(report: Report) -> dict[str, Any]:
    return {
        "machine": asdict(report.machine), "quick": report.quick, "missing": report.missing, "failed": report.failed,
        "results": [result.as_json() for result in report.results],
    }  # fmt: skip


def write(folder: Path, report: Report) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "latest.md").write_text(markdown(report))
    (folder / "latest.json").write_text(json.dumps(as_json(report), indent=1) + "\n")
