"""The golden logs of tests/golden/diagnose: short, written for this purpose, each with the cause it must give.

A file holds many: `=== name | cause | exit=1 signal=6 rank=3 evidence=words of the line`, then its streams, each
after `--- file name`. Used by tests/unit/test_diagnose.py and tools/score.py.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent / "golden" / "diagnose"


@dataclass(slots=True)
class Case:
    name: str
    label: str
    exit_code: int | None = None
    signal: int | None = None
    rank: int | None = None
    evidence: str = ""
    streams: list[tuple[str, str]] = field(default_factory=list)


def golden_cases() -> Iterator[Case]:
    for path in sorted(FOLDER.glob("*.txt")):
        for part in re.split(r"^=== ", path.read_text(encoding="utf-8"), flags=re.M)[1:]:
            yield _read(path.stem, part)


def _read(family: str, part: str) -> Case:
    head, _, body = part.partition("\n")
    name, label, options = (word.strip() for word in head.split("|", 2))
    case = Case(f"{family}/{name}", label)
    evidence = re.search(r"evidence=(.*)$", options)
    if evidence:
        case.evidence = evidence[1]
        options = options[: evidence.start()]
    for word in options.split():
        key, _, value = word.partition("=")
        if key == "exit":
            case.exit_code = int(value)
        else:
            setattr(case, key, int(value))
    for stream in re.split(r"^--- ", body, flags=re.M)[1:]:
        stream_name, _, text = stream.partition("\n")
        case.streams.append((stream_name.strip(), text))
    return case
