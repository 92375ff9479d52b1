"""An answer of git is kept only as long as git would give it again."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.agent.observe import git, provenance

WHO = (
    "-c",
    "user.name=somebody",
    "-c",
    "user.email=somebody@example.invalid",
    "-c",
    "init.defaultBranch=main",
)


def run(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *WHO, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture(autouse=True)
def _no_words_for_git(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working tree with a commit; the home is beside it."""
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    monkeypatch.setattr(git, "SETTLED_NS", -(10**15))  # as if all of it had long been there
    folder = tmp_path / "tree"
    for made in (folder / "deep", tmp_path / "home", tmp_path / "person"):
        made.mkdir(parents=True)
    run(folder, "init", "-q")
    (folder / "train.py").write_text("one\n")
    (folder / "deep" / "é.txt").write_text("two\n")
    run(folder, "add", ".")
    run(folder, "commit", "-q", "-m", "first")
    return folder


def keep(tree: Path, home: Path | None = None) -> None:
    git.keep(git.ask(str(tree)), str(home or tree.parent / "home"))


def recall(tree: Path) -> git.Answer | None:
    return git.recall(str(tree), str(tree.parent / "home"))


def test_nothing_is_known_before_git_was_asked(tree: Path) -> None:
    assert recall(tree) is None
    keep(tree)
    known = git.recall(str(tree / "deep"), str(tree.parent / "home"))
    assert known is not None and known.state is not None and known.state == git.ask(str(tree)).state
    assert (
        known.state["commit"] == run(tree, "rev-parse", "HEAD") and known.state["branch"] == "main"
    )
    assert known.state["dirty"] is False


def test_a_folder_without_git_is_known_at_once(tmp_path: Path) -> None:
    known = git.recall(str(tmp_path), str(tmp_path))
    assert known is not None and known.state is None


CHANGES: dict[str, Callable[[Path], object]] = {
    "written": lambda tree: (tree / "train.py").write_text("other words\n"),
    "written below": lambda tree: (tree / "deep" / "é.txt").write_text("other words\n"),
    "removed": lambda tree: (tree / "train.py").unlink(),
    "executable": lambda tree: (tree / "train.py").chmod(0o755),
    "staged": lambda tree: ((tree / "new.py").write_text("x\n"), run(tree, "add", "new.py")),
    "committed": lambda tree: run(tree, "commit", "-q", "--allow-empty", "-m", "second"),
    "another branch": lambda tree: run(tree, "checkout", "-q", "-b", "side"),
    "the branch set elsewhere": lambda tree: run(
        tree, "update-ref", "refs/heads/main", run(tree, "commit-tree", "HEAD^{tree}", "-m", "x")
    ),
    "a remote": lambda tree: run(tree, "remote", "add", "origin", "https://example.invalid/x.git"),
    "a remote of the person's": lambda tree: (tree.parent / "person" / ".gitconfig").write_text(
        '[remote "origin"]\n\turl = https://example.invalid/y.git\n'
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_git_would_now_tell_otherwise_is_not_known(tree: Path, what: str) -> None:
    before = git.ask(str(tree)).state
    keep(tree)
    CHANGES[what](tree)
    assert git.ask(str(tree)).state != before, "the change can be told"
    assert recall(tree) is None
    keep(tree)
    known = recall(tree)
    assert known is not None and known.state == git.ask(str(tree)).state


def test_a_git_that_was_told_to_look_elsewhere_is_asked(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tree)
    monkeypatch.setenv("GIT_PAGER", "cat")
    assert recall(tree) is not None
    monkeypatch.setenv("GIT_DIR", str(tree.parent / "other"))
    assert recall(tree) is None


def test_a_file_that_settings_include_is_one_of_those_it_was_made_from(tree: Path) -> None:
    more = tree.parent / "more"
    more.write_text('[remote "origin"]\n\turl = https://example.invalid/x.git\n')
    run(tree, "config", "include.path", str(more))
    keep(tree)
    assert recall(tree) is not None
    more.write_text('[remote "origin"]\n\turl = https://example.invalid/other.git\n')
    assert recall(tree) is None


def test_another_working_tree_of_the_same_repository_has_its_own_answer(tree: Path) -> None:
    side = tree.parent / "side"
    run(tree, "worktree", "add", "-q", "-b", "side", str(side))
    keep(side)
    known = recall(side)
    assert known is not None and known.state is not None and known.state["branch"] == "side"
    assert recall(tree) is None
    run(side, "commit", "-q", "--allow-empty", "-m", "second")
    assert recall(side) is None


def test_what_changed_just_now_is_asked_for_again(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git, "SETTLED_NS", 10**15)
    keep(tree)
    assert recall(tree) is None


@pytest.mark.parametrize(
    "why", ["submodule", "too many files", "another index", "files elsewhere", "no repository"]
)
def test_where_its_files_cannot_be_told_it_is_not_kept(
    tree: Path, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tree
    if why == "submodule":
        run(
            tree,
            "update-index",
            "--add",
            "--cacheinfo",
            f"160000,{run(tree, 'rev-parse', 'HEAD')},sub",
        )
    elif why == "too many files":
        monkeypatch.setattr(git, "GIT_FILES_MAX", 1)
    elif why == "another index":
        monkeypatch.setenv("GIT_INDEX_FILE", str(tree.parent / "index"))
    elif why == "files elsewhere":
        run(tree, "config", "core.worktree", str(tree))
    else:  # git goes on looking above it
        place = tree / "deep"
        (place / ".git").mkdir()
    state = git.ask(str(place)).state
    assert state is not None and state["commit"] == run(tree, "rev-parse", "HEAD")
    keep(place)
    assert recall(place) is None


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"top": 1}', b"\xff\0"])
def test_a_damaged_file_is_as_none(tree: Path, data: bytes) -> None:
    keep(tree)
    (tree.parent / "home" / git.KEPT).write_bytes(data)
    assert recall(tree) is None


def test_a_diff_in_which_something_was_masked_is_not_kept(tree: Path) -> None:
    (tree / "train.py").write_text("password is swordfish-0123456789\n")
    home = tree.parent / "home"
    about = provenance.About(
        ["true"], str(tree), secrets=(b"swordfish-0123456789",), home=str(home)
    )
    fact = provenance.collect(about)
    assert fact["git"]["dirty"] and "swordfish" not in fact["git"]["diff"]
    assert not (home / git.KEPT).exists()
    provenance.collect(provenance.About(["true"], str(tree), home=str(home)))
    assert (home / git.KEPT).stat().st_mode & 0o777 == 0o600
    told = provenance.at_once(about)
    assert told is not None and "swordfish" not in told["git"]["diff"] and told["git"]["dirty"]


def test_a_home_that_cannot_be_written_costs_nothing_but_the_keeping(tree: Path) -> None:
    keep(tree, tree.parent / "none")
    assert not (tree.parent / "none").exists()
