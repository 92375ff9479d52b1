"""The right-hand side of the migration pages, typed: every call does what stands beside it, without a warning."""

import re
from pathlib import Path

import pytest

from tests.unit.test_compat_wandb import Script

PAGES = Path(__file__).resolve().parents[2] / "docs" / "migrate"
HEAD = """
import headway as hw, numpy as np
array, values, samples = np.zeros((4, 4, 3)), [1.0, 2.0], np.zeros(100)
class Figure:
    def savefig(self, out, format):
        out.write(b"png")
figure = Figure()
"""


def calls(page: str) -> list[str]:
    text = (PAGES / page).read_text()
    rows = re.findall(r"^\| `[^|]*` \| `(hw\.[^|]*)` \|$", text, re.MULTILINE)
    return [row for row in rows if row.startswith("hw.")]


@pytest.mark.parametrize("page", ["wandb.md", "mlflow.md", "tensorboard.md"])
def test_every_call_of_the_page_works_and_warns_of_nothing(tmp_path: Path, page: str) -> None:
    script = Script(tmp_path)
    (tmp_path / "model.pt").write_text("x")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "y").write_text("y")
    found = calls(page)
    assert len(found) > 8
    done = script(HEAD + "\n".join(found) + "\n")
    said = [line for line in done.stderr.splitlines() if "name= is not used" not in line]
    assert said == []  # in a job of its own, the name is taken as well


def test_every_command_of_the_pages_exists() -> None:
    from headway.views.cli.commands import COMMANDS

    for page in PAGES.glob("*.md"):
        for verb in re.findall(r"`hw ([a-z]+)", page.read_text()):
            assert verb in COMMANDS, f"{page.name}: hw {verb}"
