"""The code base checked as text: docstrings, blanket handlers, dead modules, links, names
of machines.
"""

import ast
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ("requirements/", "bench/requirements/", "bench/results/", "docs/reference/", "LICENSE")
# Written in pieces, so that this file does not hold what it looks for.
MACHINE_PATHS = re.compile(
    r"(?<![\w.~$}/])/(?:" + "|".join(("work", "root", "home", "Users")) + r")/\w\w+"
)
REGISTRIES = re.compile(
    "|".join(
        re.escape(".".join(parts))
        for parts in (
            ("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"), ("docker", "io/"),
            ("ghcr", "io"), ("quay", "io"), ("anaconda", "org"), ("jfrog", "io"), ("pkg", "dev"), ("azurecr", "io"),
        )
    )
    + r"|(?:extra-)?index-url\s*[=:\s]\s*https?:"
)  # fmt: skip
UNFINISHED = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
LINK = re.compile(r"!?\[[^\]\n]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")


@cache
def files() -> list[str]:
    """Tracked files and new ones that are not ignored; without git, everything below the source
    folders.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        return sorted({name for name in listed.stdout.splitlines() if (ROOT / name).is_file()})
    folders = [ROOT / name for name in ("src", "tests", "tools", "docs", "examples", "bench")]
    return sorted(
        str(path.relative_to(ROOT))
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file()
    )


PUBLISHED = "tests/golden/wandb/"  # scripts as people write them


def python_files(*below: str) -> list[str]:
    found = [name for name in files() if name.endswith(".py") and not name.startswith(PUBLISHED)]
    return [name for name in found if not below or name.startswith(below)]


@cache
def text(name: str) -> str:
    return (ROOT / name).read_text(errors="replace")


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(text(name), name)


@cache
def nodes(name: str) -> list[ast.AST]:
    return list(ast.walk(tree(name)))


def functions(name: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in nodes(name):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def report(problems: list[str]) -> None:
    assert not problems, "\n" + "\n".join(problems)


def test_the_tree_is_found() -> None:
    assert "src/headway/model/limits.py" in files()
    assert len(python_files("src/")) > 20


def test_every_module_opens_with_a_docstring() -> None:
    report(
        [
            name
            for name in python_files()
            if text(name).strip() and not ast.get_docstring(tree(name))
        ]
    )


def test_a_package_says_what_may_be_in_it_and_imports_nothing() -> None:
    """Only the top package hands names on."""
    problems = []
    for name in python_files("src/"):
        if not name.endswith("/__init__.py") or name == "src/headway/__init__.py":
            continue
        if len(ast.get_docstring(tree(name)) or "") < 40:
            problems.append(f"{name} says nothing")
        if any(isinstance(node, ast.Import | ast.ImportFrom) for node in tree(name).body):
            problems.append(f"{name} imports")
    report(problems)


def is_blanket(handler: ast.ExceptHandler) -> bool:
    """It catches everything and does not pass it on."""
    if isinstance(handler.body[-1], ast.Raise) and handler.body[-1].exc is None:
        return False
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException"))
        for kind in kinds
    )


def comment_lines(name: str) -> set[int]:
    with tokenize.open(ROOT / name) as file:
        return {
            token.start[0]
            for token in tokenize.generate_tokens(file.readline)
            if token.type == tokenize.COMMENT
            and not re.match(r"#\s*(noqa|type: ignore|fmt:)[^(]*$", token.string)
        }


def test_a_blanket_handler_gives_its_reason() -> None:
    """`except Exception` needs a comment on its line, the line before, or the first line of its
    body.
    """
    problems = []
    for name in python_files("src/"):
        handlers = [
            node for node in nodes(name) if isinstance(node, ast.ExceptHandler) and is_blanket(node)
        ]
        commented = comment_lines(name) if handlers else set()
        for node in handlers:
            if not commented & {node.lineno - 1, node.lineno, node.lineno + 1}:
                problems.append(f"{name}:{node.lineno} catches everything without a reason")
    report(problems)


# These may stand in several folders: each is what an engineer expects behind the name.
COMMON_NAMES = {"__init__", "main", "engine", "protocol", "machine", "zygote"}
TWICE_MAX = 12
NESTED_MAX = 5


def test_one_name_means_one_thing() -> None:
    """A base name stands once, but for a dozen; verbs keep theirs in `views/cli` and `server/api`."""
    places: dict[str, list[str]] = {}
    for name in python_files("src/"):
        if not name.startswith(("src/headway/views/cli/", "src/headway/server/api/")):
            places.setdefault(Path(name).stem, []).append(name)
    twice = {
        stem: names for stem, names in places.items() if len(names) > 1 and stem not in COMMON_NAMES
    }
    assert len(twice) <= TWICE_MAX, twice


def test_a_choice_inside_a_choice_is_an_if() -> None:
    """`a if x else b if y else c` is read twice by everybody; a few that read well may stay."""
    found = []
    for name in python_files("src/"):
        for node in nodes(name):
            inner = (node.body, node.orelse) if isinstance(node, ast.IfExp) else ()
            if any(isinstance(part, ast.IfExp) for part in inner):
                found.append(f"{name}:{node.lineno}")
    assert len(found) <= NESTED_MAX, "\n" + "\n".join(found)


def test_nothing_is_left_unfinished() -> None:
    report(
        [f"{name}: {found[0]}" for name in files() if (found := UNFINISHED.search(readable(name)))]
    )


def readable(name: str) -> str:
    return "" if name.endswith((".png", ".whl", ".db", ".bin")) else text(name)


def test_every_module_is_used() -> None:
    """A module that no other file names is dead, unless it is an entry point."""
    named_by: dict[str, set[str]] = {}  # a word, and the files that it stands in
    for name in [*python_files(), "pyproject.toml"]:
        for word in set(re.findall(r"\w+", text(name))):
            named_by.setdefault(word, set()).add(name)
    problems = []
    for name in python_files("src/"):
        stem = Path(name).stem
        if stem in ("__init__", "__main__", "sitecustomize"):  # Python itself looks for these
            continue
        if not named_by.get(stem, set()) - {name}:
            problems.append(f"{name} is named nowhere")
    report(problems)


def test_no_file_names_this_machine_or_a_registry() -> None:
    problems = []
    for name in files():
        for pattern, what in (
            (MACHINE_PATHS, "a path of one machine"),
            (REGISTRIES, "a package registry"),
        ):
            found = pattern.search(readable(name))
            if found:
                line = readable(name).count("\n", 0, found.start()) + 1
                problems.append(f"{name}:{line} names {what}: {found[0]}")
    report(problems)


def test_a_test_is_named_as_a_fact() -> None:
    """`test_1` and `test_foo` say nothing: a name has at least three words after `test`."""
    report(
        [
            f"{name}:{node.lineno} {node.name}"
            for name in python_files("tests/")
            for node in functions(name)
            if node.name.startswith("test_") and node.name.count("_") < 3
        ]
    )


def heading_anchors(markdown: str) -> set[str]:
    """Anchors as the usual viewers make them: lower case, spaces to dashes, punctuation dropped."""
    found = re.findall(r"^#{1,6}\s+(.+?)\s*$", markdown, re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).replace(" ", "-")
        for heading in found
    }


@pytest.mark.parametrize("name", [name for name in files() if name.endswith(".md")])
def test_every_link_resolves(name: str) -> None:
    prose = re.sub(r"```.*?```", "", text(name), flags=re.DOTALL)
    problems = []
    for target in LINK.findall(prose):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        if not file.exists():
            problems.append(f"{name}: {target} does not exist")
        elif anchor and file.suffix == ".md" and anchor not in heading_anchors(file.read_text()):
            problems.append(f"{name}: {target} has no such heading")
    report(problems)
