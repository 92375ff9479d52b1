"""What a user's type checker sees of `import headway`: parameters, and errors where a call is wrong."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import headway

STUB = Path(headway.__file__).with_suffix(".pyi")
RIGHT = """
import headway as hw

run = hw.init(config={"lr": 0.1}, tags=["a"])
with hw.init() as again:
    again.log({"loss": 0.1}, step=1)
hw.log({"loss": 0.1, "acc": 0.5}, step=3)
reveal_type(run.id)
reveal_type(hw.job("last").metrics("loss").name)
for one in hw.jobs(where="lr < 0.1"):
    reveal_type(one.config)
"""
WRONG = [
    "hw.log(5)", "hw.log('loss', 0.1)", "hw.log({'a': 1}, stp=1)", "hw.nonsense", "hw.init(confg={})",
    "hw.submit('python train.py', nn=4)", "from headway import nonsense",
]  # fmt: skip


def check(text: str, folder: Path) -> str:
    file = folder / "user.py"
    file.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", f"--cache-dir={folder}/c", "user.py"],
        cwd=folder, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    return done.stdout


def test_right_calls_are_typed_and_wrong_ones_are_errors(tmp_path: Path) -> None:
    found = check(RIGHT + "\n".join(WRONG) + "\n", tmp_path)
    first_wrong = len(RIGHT.split("\n"))
    errors = {int(line) for line in re.findall(r"user\.py:(\d+): error", found)}
    assert errors == set(range(first_wrong, first_wrong + len(WRONG))), found
    assert 'Revealed type is "str"' in found or 'Revealed type is "builtins.str"' in found


def test_the_stub_has_every_public_name() -> None:
    tree = ast.parse(STUB.read_text())
    names = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    names |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    names |= {
        node.target.id
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert set(headway.__all__) <= names
