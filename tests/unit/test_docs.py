"""What can be typed, set, limited, called or returned is documented, and every promise names a test
that exists.
"""

import ast
import inspect
import json
import re
from functools import cache
from pathlib import Path

import pytest

import headway
from headway.model import errors, limits
from headway.settings.jobschema import JOB
from headway.settings.schema import SETTINGS
from headway.views.cli import commands, options
from tools import figures, reference, typescript

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PROMISES = [f"P{number}" for number in range(1, 14)]


@cache
def made() -> dict[str, str]:
    return reference.pages()


PAGES = "commands.md python.md settings.md limits.md routes.md exit-codes.md job-file.md job.schema.json".split()


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_reference_is_what_the_code_says(name: str) -> None:
    """If this fails: `make docs`, and commit what it wrote."""
    assert (DOCS / "reference" / name).read_text() == made()[name]


def test_every_command_and_option_is_documented() -> None:
    text = made()["commands.md"]
    for command in commands.COMMANDS.values():
        assert f"### hw {command.name}" in text
    used = {key for command in commands.COMMANDS.values() for key in command.options} | set(
        options.EVERYWHERE
    )
    for option in options.OPTIONS:
        assert option.key in used, f"{option.names} belongs to no command"
        assert option.help, f"{option.names} says nothing"


def test_every_command_has_its_file() -> None:
    folder = ROOT / "src" / "headway" / "views" / "cli"
    assert [
        c.name for c in commands.COMMANDS.values() if not (folder / f"{c.name}.py").exists()
    ] == []


def test_every_public_name_of_python_says_what_it_does() -> None:
    text = made()["python.md"]
    guide = "".join(
        (DOCS / "guides" / name).read_text()
        for name in ("track-metrics.md", "watch-from-python.md")
    )
    for name in headway.__all__:
        assert f"## hw.{name}\n" in text
        assert len(inspect.getdoc(getattr(headway, name)) or "") > 20, name
        assert re.search(rf"\b{name}\b", guide), f"no guide mentions hw.{name}"


def test_every_setting_is_documented() -> None:
    text = made()["settings.md"]
    assert [name for name in SETTINGS if f"| `{name}` |" not in text] == []


def test_every_key_of_a_job_file_is_documented() -> None:
    text, schema = made()["job-file.md"], json.loads(made()["job.schema.json"])
    assert [
        key.name
        for key in JOB.keys
        if f"| `{key.name}` |" not in text or key.name not in schema["properties"]
    ] == []


def test_every_limit_is_documented() -> None:
    names = {name for name in vars(limits) if name.isupper()} - {"KIB", "MIB", "GIB"}
    assert len(names) > 50
    assert [name for name in sorted(names) if f"| `{name}` |" not in made()["limits.md"]] == []


def test_every_route_is_documented_with_what_it_does() -> None:
    routes = reference.routes()
    assert len(routes) > 10
    assert [f"{r.method} {r.path}" for r in routes if not reference.route_text(r)] == []


def test_every_exit_code_of_an_error_is_documented() -> None:
    text = made()["exit-codes.md"]
    for kind in reference.subclasses(errors.HeadwayError):
        assert f"| {kind.exit_code} |" in text


def test_every_reference_page_is_linked_from_the_front_page() -> None:
    front = (ROOT / "README.md").read_text() + (DOCS / "start.md").read_text()
    assert [name for name in made() if f"reference/{name}" not in front] == []


def test_every_page_can_be_reached_from_the_front_page() -> None:
    seen: set[Path] = set()
    queue = [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        if page in seen or not page.exists():
            continue
        seen.add(page)
        targets = re.findall(r"\]\(([^)#\s]+\.md)", page.read_text())
        queue += [(page.parent / target).resolve() for target in targets if ":" not in target]
    assert (
        sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page not in seen) == []
    )


def test_the_front_page_quotes_the_last_bench_run() -> None:
    """If this fails: `tools/figures.py` copies the table of bench/results/latest.md into the
    README.
    """
    assert "<!-- figures -->" in figures.quoted()
    assert figures.README.read_text() == figures.quoted()


# -- promises


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text())
    found = (
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return frozenset(node.name for node in found if node.name.startswith("test_"))


def promised() -> dict[str, list[tuple[str, str]]]:
    """`{"P1": [(file, test), …]}` as docs/promises.md has it."""
    sections = re.split(r"^## (?=P\d)", (DOCS / "promises.md").read_text(), flags=re.MULTILINE)[1:]
    return {
        section.split()[0].rstrip("."): re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", section)
        for section in sections
    }


def test_every_promise_stands_there_in_order() -> None:
    assert list(promised()) == PROMISES


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_names_a_test_that_exists(promise: str) -> None:
    named = promised()[promise]
    assert named, f"{promise} names no test"
    for file, test in named:
        assert (ROOT / file).exists(), f"{promise}: no file {file}"
        assert test in names_in(file), f"{promise}: no test {test} in {file}"


def test_every_route_says_what_it_answers() -> None:
    """A type of `server/contract.py`; from it come the OpenAPI document and the page's types."""
    untyped = [
        f"{r.method} {r.path}"
        for r in reference.routes()
        if r.answer is None and r.path.startswith(("/api", "/agent"))
    ]
    assert untyped == [], (
        "give the route answer=… : a Struct of server/contract.py, or None | bytes as `contract.Raw`"
    )


def test_the_types_of_the_page_are_what_the_server_says() -> None:
    assert typescript.TARGET.read_text() == typescript.module(), "type: make docs"
