"""The page in Chromium: how long until somebody sees what they opened, with much of everything in
the home. Times are from the address to the picture, so the page itself is loaded in each of them.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.context import Context
from bench.home import HW, Home
from bench.measure import wait_until
from bench.result import HEADWAY, Measure, Result

WEB = Path(__file__).parents[2] / "web"
JOBS, LINES = 100_000, 10_000_000
PROGRAMS = {
    "fifty": "for i in range(100_000): hw.log({f'm{n:02d}': random.random() + n for n in range(50)}, step=i)",
    "million": "for i in range(1_000_000): hw.log({'loss': random.random()}, step=i)",
    "names": "for i in range(40): hw.log({f'layer{n // 100}/grad{n % 100}': i * n % 97 for n in range(3000)}, step=i)",
}
LOG = """
import sys
for block in range({0}):
    lines = (f"line {{block * 10000 + i}} of a long log\\n" for i in range(10000))
    sys.stdout.write("".join(lines))
"""
# What is measured, what it is called in the table, and its target in milliseconds.
TARGETS = (
    ("jobs_rows_ms", f"page: first rows of {JOBS:,} jobs", 500),
    ("jobs_frame_ms", "page: longest frame while the jobs scroll", 50),
    ("fifty_ms", "page: a job with 50 metrics of 100,000 points", 1_000),
    ("million_ms", "page: a chart of 1,000,000 points", 300),
    ("names_ms", "page: 3,000 metric names, first picture", 1_000),
    ("names_frame_ms", "page: longest frame while 3,000 charts scroll", 50),
    ("line_ms", f"page: any line of {LINES:,}", 300),
)


def run(context: Context) -> Iterator[Result]:
    chromium = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    node = shutil.which("node")
    if chromium is None or node is None or not (WEB / "node_modules").is_dir():
        context.say("page: Chromium, node or web/node_modules is missing; not measured")
        return
    with context.home() as home:
        _fill(context, home)
        found = _measure(context, home, node, chromium)
    for key, what, limit_ms in TARGETS:
        result = Result(what, "ms", [Measure(HEADWAY, found[key])])
        result.at_most(f"at most {limit_ms:,} ms", result.measures[0].median, limit_ms, "ms")
        yield result


def _fill(context: Context, home: Home) -> None:
    jobs = [
        home.hw_json(
            "submit",
            "--name",
            name,
            sys.executable,
            "-c",
            f"import headway as hw, random\n{program}",
        )
        for name, program in PROGRAMS.items()
    ]
    program = LOG.format(context.size(LINES, LINES) // 10_000)
    jobs.append(home.hw_json("submit", "--name", "log", sys.executable, "-c", program))
    for job in jobs:
        wait_until(
            lambda ref=job["id"]: home.hw_json("q", ref)["state"] == "succeeded",
            300,
            "a job has not ended",
        )
    home.stop()
    fill = [
        sys.executable,
        str(WEB / "tests/fill_jobs.py"),
        str(home.folder),
        str(context.size(JOBS, 5_000)),
    ]
    subprocess.run(fill, env=home.env, check=True)
    home.start()


def _measure(context: Context, home: Home, node: str, chromium: str) -> dict[str, list[float]]:
    argv = [node, "tests/measure.mjs", HW, chromium, str(context.rounds)]
    done = subprocess.run(argv, cwd=WEB, env=home.env, capture_output=True, text=True, check=True)
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found
