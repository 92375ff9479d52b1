"""Copies the targets of the last bench run, with its date and machine, into the README. `make
bench` calls it.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "bench" / "results"
BLOCK = re.compile(r"(<!-- figures -->\n).*?(<!-- end of figures -->)", re.DOTALL)


def figures() -> str | None:
    """The quoted part of `bench/results/latest.md`, or None when there is none that may be quoted."""
    table, data = RESULTS / "latest.md", RESULTS / "latest.json"
    if not table.exists() or not data.exists() or json.loads(data.read_text())["quick"]:
        return None
    head, _, rows = table.read_text().split("\n## ")[0].partition("\n| ")
    when = "\n".join(head.splitlines()[2:]).strip()
    folded = f"<details><summary>All targets</summary>\n\n| {rows.strip()}\n\n</details>\n"
    plot = (
        "\n![the figures as a plot](bench/results/latest.svg)\n"
        if (RESULTS / "latest.svg").exists()
        else ""
    )
    more = "Every number: [bench/results/latest.md](bench/results/latest.md). Again: `make bench`."
    return f"{when}\n{plot}\n{folded}\n{more}\n"


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
