"""What is declared, what is imported and what is locked agree."""

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# where the module is not called like its package
MODULES = {"pyyaml": "yaml", "nvidia-ml-py": "pynvml", "pillow": "PIL"}
# uvicorn speaks HTTP through it, when it is there; we subclass that part of uvicorn.
# TensorBoard is started as a program; it needs setuptools and does not say so.
INDIRECT = {"httptools", "tensorboard", "setuptools"}
# looked at when the user's program has them
OPTIONAL = {"headway_bootstrap", "torch", "keras", "stable_baselines3", "xgboost"}


def project() -> dict[str, list[str]]:
    """`{"": names of the dependencies, extra: names of that extra}`."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"": table["dependencies"], **table["optional-dependencies"]}
    return {group: [name_of(line) for line in lines] for group, lines in groups.items()}


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9_.-]+", requirement)
    assert found, requirement
    return found[0].lower()


def locked(name: str) -> dict[str, str]:
    """`{package: its whole entry}` of a lock."""
    text = (ROOT / "requirements" / name).read_text()
    entries = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    return {name_of(entry): entry for entry in entries}


def third_party_imports() -> set[str]:
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"headway"}


def test_what_is_imported_is_declared_and_the_reverse() -> None:
    declared = {MODULES.get(name, name) for names in project().values() for name in names}
    imported = third_party_imports() - OPTIONAL
    assert imported <= declared, f"imported and not declared: {imported - declared}"
    assert declared <= imported | INDIRECT, (
        f"declared and not imported: {declared - imported - INDIRECT}"
    )


def test_every_dependency_is_locked_with_hashes() -> None:
    wanted = {name for names in project().values() for name in names}
    wanted |= {
        name_of(line)
        for line in (ROOT / "requirements" / "dev.in").read_text().splitlines()
        if line and not line.startswith("#")
    }
    lock = locked("dev.txt")
    assert wanted <= set(lock), f"not locked: {wanted - set(lock)}; type: make lock"
    for name, entry in {**lock, **locked("uv.txt")}.items():
        assert re.match(r"[A-Za-z0-9_.-]+==\S+", entry), f"{name} is not pinned"
        assert "--hash=sha256:" in entry, f"{name} has no hash"


def test_a_lock_names_no_index() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        assert not re.search(r"https?:|--index|--find-links|file:", path.read_text()), path.name
