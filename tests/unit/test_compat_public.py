"""Scripts as people publish them, unchanged: with `--as wandb` they run to their end, and every scalar
that the real wandb keeps of them is kept here, at its step.

tests/golden/wandb/NAME.json is what the real wandb (offline) kept of NAME.py; it is written by
`tools/public_scripts.py --record`.
"""

import json
import math
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.test_compat_wandb import Script

FOLDER = Path(__file__).parents[1] / "golden" / "wandb"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
SEEDS = "import random\nrandom.seed(7)\nimport numpy\nnumpy.random.seed(7)\n"


def key(name: str, step: int, value: float) -> tuple[str, int, str]:
    """A point, with the tag `run` of further runs left out."""
    return name.partition("{")[0], step, "nan" if math.isnan(value) else f"{value:.6g}"


@pytest.mark.parametrize("name", NAMES)
def test_every_scalar_of_a_published_script_is_kept(tmp_path: Path, name: str) -> None:
    script = Script(tmp_path)
    script.env["WANDB_MODE"] = "offline"
    script(SEEDS + (FOLDER / f"{name}.py").read_text())
    wanted = json.loads((FOLDER / f"{name}.json").read_text())
    expected = Counter(key(n, step, value) for n, rows in wanted.items() for step, value in rows)
    kept = Counter(key(*point) for point in script.points())
    assert sorted((expected - kept).elements()) == []


def test_the_sample_is_large_enough_to_say_something() -> None:
    assert len(NAMES) >= 20
    assert {path.stem for path in FOLDER.glob("*.json")} == set(NAMES)
