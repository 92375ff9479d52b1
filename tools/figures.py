"""Copies the figures that matter of the last bench run, with its date and machine, into the README.
`make bench` calls it.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "bench" / "results"
# Of the rows of the table those that a person asks for first; the others stand in bench/results.
HEADLINES = (
    "log of 2 values, median | at least 3 ×",
    "log of 2 values, median | at least 40 × faster than wandb",
    "points after SIGKILL",
    "run true",
    "chart of 2000 points out of 1 M",
    "all 200,000 points",
    "print() to the live view, 8 ranks × 2 lines/s | median",
    "CPU of sampling 16 processes",
)
BLOCK = re.compile(r"(<!-- figures -->\n).*?(<!-- end of figures -->)", re.DOTALL)


def figures() -> str | None:
    """The quoted part of `bench/results/latest.md`, or None when there is none that may be quoted."""
    table, data = RESULTS / "latest.md", RESULTS / "latest.json"
    if not table.exists() or not data.exists() or json.loads(data.read_text())["quick"]:
        return None
    head, _, rows = table.read_text().split("\n## ")[0].partition("\n| ")
    when = "\n".join(head.splitlines()[2:]).strip()
    names, rule, *found = f"| {rows.strip()}".splitlines()
    chosen = [row for row in found if row.removeprefix("| ").startswith(HEADLINES)]
    shown = "\n".join([names, rule, *chosen])
    more = "All of them: [bench/results/latest.md](bench/results/latest.md). Again: `make bench`."
    return f"{shown}\n\n{when}\n{more}\n"


def quoted() -> str:
    """The README as it should be."""
    text = README.read_text()
    found = figures()
    return text if found is None else BLOCK.sub(lambda block: block[1] + found + block[2], text)


def main() -> int:
    README.write_text(quoted())
    return 0


if __name__ == "__main__":
    sys.exit(main())
