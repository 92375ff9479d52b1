"""Do public scripts that call `wandb.init` run unchanged with `hw run --as wandb`, with all scalars?

    python tools/public_scripts.py FOLDER --python PYTHON [--seconds 90] [--only NAME…]
    python tools/public_scripts.py tests/golden/wandb --python PYTHON --record

FOLDER has a folder for each script, with `script.py` in it and what lies beside it. PYTHON is an
interpreter with the real wandb and what the scripts import. Each script is first run with the real
wandb, offline and without a network: what does not come to its end there cannot run here, and does
not count. The others are run with Headway, and every scalar that wandb kept is looked for: metric,
step and, where the script gives the same numbers twice, value.

`--record` writes what the real wandb keeps of each FOLDER/NAME.py to NAME.json, for the tests.
"""

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headway.views.importers import wandb_files
from headway.views.importers.imported_run import ImportedRun, MixedStream

# Seeds what scripts draw from, so that two runs give the same numbers.
RUNNER = """
import random, runpy, sys
random.seed(7)
if __import__("importlib.util").util.find_spec("numpy"):
    import numpy
    numpy.random.seed(7)
sys.argv = ["script.py"]
sys.path.insert(0, ".")
runpy.run_path("script.py", run_name="__main__")
"""
FIND = "import importlib.util, sys; print(*[n for n in sys.argv[1:] if not importlib.util.find_spec(n)])"
QUIET = {
    "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_API_KEY": "0" * 40, "MPLBACKEND": "Agg",
    "HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0", "KERAS_BACKEND": "torch", "TQDM_DISABLE": "1",
    "https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "PYTHONWARNINGS": "ignore",
    "CI": "true",
}  # fmt: skip
Points = dict[str, list[tuple[int, float]]]  # by metric


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", required=True)
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--only", nargs="*", default=[], help="names of folders")
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    if asked.record:
        return record(asked.folder, asked.python, asked.seconds, asked.only)
    rows: list[dict[str, Any]] = []
    home = tempfile.mkdtemp(prefix="hw-public-")
    for script in sorted(asked.folder.glob("*/script.py")):
        if asked.only and script.parent.name not in asked.only:
            continue
        row = check(script, asked.python, asked.seconds, home)
        rows.append(row)
        print(json.dumps(row), flush=True)
    subprocess.run([*HW, "server", "stop"], env=environment(home), capture_output=True, check=False)
    shutil.rmtree(home, ignore_errors=True)
    able = [row for row in rows if row["able"]]
    ran = [row for row in able if row["ran"]]
    whole = [row for row in ran if not row["missing"]]
    print(
        f"{len(rows)} scripts, {len(able)} can run here; with Headway {len(ran)} run to their end, "
        f"{len(whole)} with all scalars"
    )
    return 0


def record(folder: Path, python: str, seconds: float, only: list[str]) -> int:
    for path in sorted(folder.glob("*.py")):
        if only and path.stem not in only:
            continue
        with tempfile.TemporaryDirectory() as place:
            script = Path(place) / "source" / "script.py"
            script.parent.mkdir()
            shutil.copy(path, script)
            found = _run_real(script, python, seconds, Path(place) / "run", place)
        if isinstance(found, str):
            print(f"{path.name}: {found}", file=sys.stderr)
            return 1
        rows = ",\n".join(
            f"  {json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found)
        )
        path.with_suffix(".json").write_text(f"{{\n{rows}\n}}\n")
    return 0


HW = [str(Path(sys.executable).with_name("hw"))]


def environment(home: str) -> dict[str, str]:
    return {**os.environ, **QUIET, "HEADWAY_HOME": home}


def check(script: Path, python: str, seconds: float, home: str) -> dict[str, Any]:
    row: dict[str, Any] = {"name": script.parent.name, "able": False, "ran": False, "missing": []}
    missing = _missing_modules(script, python)
    if missing is None or missing:
        return row | {"why": f"needs {missing}" if missing else "is no Python by itself"}
    with tempfile.TemporaryDirectory() as folder:
        real = _run_real(script, python, seconds, Path(folder) / "real", home)
        if isinstance(real, str):
            return row | {"why": real}
        row |= {"able": True, "points": sum(len(values) for values in real.values())}
        ours = _run_ours(script, python, seconds, Path(folder) / "ours", home)
        if isinstance(ours, str):
            return row | {"why": ours}
        missing = _missing_points(real, ours, set(real))
        if missing:  # does the script give the same numbers twice?
            again = _run_real(script, python, seconds, Path(folder) / "again", home)
            stable = {
                name for name in real if isinstance(again, dict) and again.get(name) == real[name]
            }
            missing = _missing_points(real, ours, stable)
        row |= {"ran": True, "missing": missing}
    return row


def _missing_modules(script: Path, python: str) -> list[str] | None:
    try:
        tree = ast.parse(script.read_text())
    except (SyntaxError, ValueError):
        return None
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    beside = {path.stem for path in script.parent.iterdir()}
    found = subprocess.run(
        [python, "-c", FIND, *sorted(names - beside)], capture_output=True, text=True, check=False
    )
    return found.stdout.split()


def _copy(script: Path, folder: Path) -> None:
    shutil.copytree(script.parent, folder)
    (folder / "_seeded.py").write_text(RUNNER)


def _run(words: list[str], folder: Path, seconds: float, home: str) -> str | None:
    """None: it came to its end; else why not."""
    try:
        done = subprocess.run(
            words, cwd=folder, env=environment(home), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"takes longer than {seconds:g} s"
    if done.returncode == 0:
        return None
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    told = [line for line in lines if "Error" in line or "Exception" in line]
    return ((told or lines or ["?"])[-1])[-200:]


def _run_real(script: Path, python: str, seconds: float, folder: Path, home: str) -> Points | str:
    _copy(script, folder)
    why = _run([python, "_seeded.py"], folder, seconds, home)
    if why is not None:
        return why
    found: Points = {}
    for path in sorted(folder.rglob("*.wandb")):
        for name, step, value in _scalars(wandb_files.read_run(path, folder)):
            found.setdefault(name, []).append((step, value))
    return {name: sorted(values) for name, values in found.items()}


def _scalars(run: ImportedRun) -> Iterator[tuple[str, int, float]]:
    for stream in run.streams:
        if isinstance(stream, MixedStream):
            for names, step, _, values in stream.records:
                yield from ((name, step, value) for name, value in zip(names, values, strict=True))


def _run_ours(script: Path, python: str, seconds: float, folder: Path, home: str) -> Points | str:
    _copy(script, folder)
    name = "public"
    words = [*HW, "run", "--as", "wandb", "--name", name, "--", python, "_seeded.py"]
    why = _run(words, folder, 2 * seconds + 30, home)
    if why is not None:
        return why
    listed = _ask(home, "ls", "--match", f"^{name}", "--limit", "50", "--json")
    found: Points = {}
    for job in listed:
        for name_, entries in _ask(home, "metrics", job["id"], "--json")[job["id"]].items():
            for entry in entries:
                for step, value in zip(entry["step"], entry["value"], strict=True):
                    found.setdefault(name_.partition("{")[0], []).append((step, float(value)))
    for job in listed:
        subprocess.run(
            [*HW, "delete", "--yes", job["id"]],
            env=environment(home),
            check=False,
            capture_output=True,
        )
    return found


def _ask(home: str, *words: str) -> Any:
    done = subprocess.run(
        [*HW, *words], env=environment(home), capture_output=True, text=True, check=False
    )
    return json.loads(done.stdout)


def _missing_points(real: Points, ours: Points, stable: set[str]) -> list[str]:
    missing = []
    for name, wanted in real.items():
        kept = ours.get(name, [])
        steps = Counter(step for step, _ in wanted) - Counter(step for step, _ in kept)
        if steps:
            missing.append(f"{name}: {sum(steps.values())} of {len(wanted)} points")
        elif name in stable and not _same(wanted, kept):
            missing.append(f"{name}: other values")
    return missing


def _same(wanted: list[tuple[int, float]], kept: list[tuple[int, float]]) -> bool:
    left = sorted(kept)
    return all(
        any(step == other and (value == given or abs(value - given) <= 1e-6 * abs(value) or value != value)
            for other, given in left)
        for step, value in wanted
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
