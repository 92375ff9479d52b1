"""Our reading of `.gitignore` against git's own, and names that hold secrets."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.code.excluded_names import is_secret
from headway.code.ignore import Ignored, Rules
from headway.code.tree import CodeRules, Tree
from tests import needs

PATHS = [
    "a", "b.py", "foo", "foo/a", "foo/bar", "foo/bar/a", "foo/bar/b.py", "build/x/y/a", "x/build", "x/y/foo/z.pyc",
    "a b", "trail ", "#hash", "!bang", "[x]", "x-1", "x-a", "deep/er/and/er/a.log", "star*", "q?", "foo.txt/in",
]  # fmt: skip
PIECES = [
    "*", "**", "?", "foo", "bar", "a", "b", "x", "/", "/", ".py", "build", "[a-z]", "[!a]", "[[:digit:]]", "-", "\\",
    "!", "#", " ", "er", "[", "]", "^", "y",
]  # fmt: skip


def ours(lines: list[str], path: str) -> bool:
    ignored = Ignored()
    ignored.add(Rules(lines))
    return ignored.ignores(path)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs.tool("git", "git")
    root = tmp_path_factory.mktemp("ignored")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


def gits(root: Path, lines: list[str], paths: list[str]) -> set[str]:
    """What git says of paths that need not exist. A path is a file; a folder above it may be what
    is ignored.
    """
    (root / ".gitignore").write_text("\n".join(lines) + "\n")
    done = subprocess.run(
        ["git", "-c", "core.quotePath=false", "check-ignore", "--no-index", "-z", "--stdin"],
        cwd=root, input="\0".join(paths) + "\0", capture_output=True, text=True, check=False,
    )  # fmt: skip
    return set(done.stdout.split("\0")) - {""}


@given(
    st.lists(
        st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join),
        min_size=1,
        max_size=4,
    )
)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_patterns_mean_what_git_says_they_mean(repository: Path, lines: list[str]) -> None:
    expected = gits(repository, lines, PATHS)
    assert {path for path in PATHS if ours(lines, path)} == expected


@pytest.mark.parametrize(
    ("line", "hit", "miss"),
    [
        ("*.log", ["a.log", "x/a.log"], ["a.log.txt"]),
        ("/a", ["a"], ["x/a"]),
        ("x/", ["x/y"], ["x"]),
        ("a/**/b", ["a/b", "a/x/y/b"], ["a/bb"]),
        ("**/b", ["b", "x/y/b"], ["bb"]),
        ("a/**", ["a/x", "a/x/y"], ["a"]),
        (r"\#x", ["#x"], ["x"]),
        (r"a\ ", ["a "], ["a"]),
        ("[a", [], ["a", "[a"]),
    ],
)
def test_a_pattern_matches_what_the_manual_says(line: str, hit: list[str], miss: list[str]) -> None:
    assert [path for path in hit if not ours([line], path)] == []
    assert [path for path in miss if ours([line], path)] == []


def test_a_deeper_file_wins_but_not_inside_an_ignored_folder() -> None:
    ignored = Ignored()
    ignored.add(Rules(["*.log", "out/"]))
    ignored.add(Rules(["!keep.log"], "x/"))
    ignored.add(Rules(["!*"], "out/"))
    assert (
        not ignored.ignores("x/keep.log")
        and ignored.ignores("keep.log")
        and ignored.ignores("out/a")
    )


@pytest.mark.parametrize(
    "path", [".env", "x/.env.local", "a/id_rsa", "k.pem", ".aws/config", "x/.ssh/known_hosts"]
)
def test_names_of_secrets_are_known(path: str) -> None:
    assert is_secret(path)


@pytest.mark.parametrize(
    "path", [".env.example", "id_rsa.pub", "environment.py", "keys.py", "ssh/config"]
)
def test_other_names_are_not_secrets(path: str) -> None:
    assert not is_secret(path)


def test_without_git_the_same_files_are_found_as_with_it(tmp_path: Path) -> None:
    needs.tool("git", "git")
    files = [
        "train.py",
        "out/a.bin",
        "out/keep/b.txt",
        "x/.gitignore",
        "x/t.tmp",
        "x/keep.tmp",
        "y/t.tmp",
        ".hwignore",
    ]
    for name in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (tmp_path / ".gitignore").write_text("*.tmp\nout/*\n!out/keep\n")
    (tmp_path / "x/.gitignore").write_text("!keep.tmp\n")
    (tmp_path / ".hwignore").write_text("y/\n")
    alone = sorted(Tree(str(tmp_path), CodeRules()).paths())
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert sorted(Tree(str(tmp_path), CodeRules()).paths()) == alone
    assert alone == [
        ".gitignore",
        ".hwignore",
        "out/keep/b.txt",
        "train.py",
        "x/.gitignore",
        "x/keep.tmp",
    ]
