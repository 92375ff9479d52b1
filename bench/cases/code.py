"""A code snapshot of 50,000 files: the first one, the next one when nothing has changed, and laying
it out again.
"""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench.context import Context
from bench.home import Home
from bench.result import HEADWAY, Measure, Result

FILES, FILES_QUICK = 50_000, 2_000
FIRST_S, AGAIN_S = 5.0, 0.5


def run(context: Context) -> Iterator[Result]:
    files = context.size(FILES, FILES_QUICK)
    tree = make_tree(context.folder("code-tree"), files)
    first, again = [], []
    for _ in range(context.rounds):
        with context.home(server=False) as home:
            first.append(_init_s(home, tree))
            again += [_init_s(home, tree) for _ in range(2)]
    for what, samples, limit_s in (
        ("the first", first, FIRST_S),
        ("again, nothing changed", again, AGAIN_S),
    ):
        result = Result(f"hw init of {files:,} files, {what}", "s", [Measure(HEADWAY, samples)])
        result.at_most(f"at most {limit_s:g} s", result.measures[0].median, limit_s, "s")
        result.notes.append("A git work tree; the whole command, from its start to its end.")
        yield result


def make_tree(root: Path, files: int) -> Path:
    """A git work tree with 100 files in each folder, of 0.2 to 2 kB."""
    for number in range(files // 100):
        folder = root / f"pkg{number % 50}" / f"sub{number}"
        folder.mkdir(parents=True)
        for name in range(100):
            line = f"# {number} {name}\n".encode()
            (folder / f"m{name}.py").write_bytes(line * ((number + name) % 200 + 20))
    for words in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    # a tree is on its disk long before it is taken
    subprocess.run(["sync", "-f", str(root)], check=True)
    return root


def _init_s(home: Home, tree: Path) -> float:
    start_s = time.perf_counter()
    home.hw("init", "--json", cwd=tree)
    return time.perf_counter() - start_s
