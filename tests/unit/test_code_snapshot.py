"""Snapshots of working trees: what is in them, that they repeat, and what is told about the rest
(capability 47).
"""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from headway.code import checkout, snapshot
from headway.code import manifest as manifests
from headway.code.depot import Depot
from headway.code.manifest import Entry
from headway.code.tree import CodeRules
from headway.model.errors import DamagedError, NotFoundError, RefusedError
from tests import needs

GIT = [
    "git",
    "-c",
    "user.name=x",
    "-c",
    "user.email=x@example.invalid",
    "-c",
    "protocol.file.allow=always",
]


def git(cwd: Path, *words: str) -> None:
    needs.tool("git", "git")
    subprocess.run([*GIT, *words], cwd=cwd, check=True, capture_output=True)


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def settle(root: Path) -> None:
    """Times in the past, so that nothing is racy; ctime cannot be set, so its clock has to move on."""
    newest = max((os.lstat(path).st_ctime_ns for path in [root, *root.rglob("*")]), default=0)
    while time.time_ns() < newest + 150_000_000:
        time.sleep(0.01)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    write(
        root,
        {
            "train.py": "print(1)\n",
            "pkg/model.py": "x = 1\n",
            "pkg/deep/er.txt": "",
            "näme ✓.txt": "u",
        },
    )
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link.py").symlink_to("pkg/model.py")
    return root


@pytest.fixture
def depot(tmp_path: Path) -> Depot:
    return Depot(tmp_path / "home" / "code")


def paths(depot: Depot, digest: str) -> list[str]:
    return [entry.path for entry in depot.manifest(digest)]


def test_a_snapshot_comes_back_as_it_was(tree: Path, depot: Depot, tmp_path: Path) -> None:
    made = snapshot.make(str(tree), depot)
    out = tmp_path / "out"
    assert checkout.restore(depot, made.digest, str(out)) == made.files == 6
    assert (out / "pkg/model.py").read_text() == "x = 1\n" and (
        out / "näme ✓.txt"
    ).read_text() == "u"
    assert os.access(out / "run.sh", os.X_OK) and not os.access(out / "train.py", os.X_OK)
    assert os.readlink(out / "link.py") == "pkg/model.py"
    assert snapshot.make(str(out), Depot(tmp_path / "other")).digest == made.digest


def test_names_that_are_not_text_survive(tree: Path, depot: Depot, tmp_path: Path) -> None:
    odd = os.fsencode(tree) + b"/\xff\nx"
    with open(odd, "wb") as file:
        file.write(b"odd")
    checkout.restore(depot, snapshot.make(str(tree), depot).digest, str(tmp_path / "out"))
    with open(os.fsencode(tmp_path / "out") + b"/\xff\nx", "rb") as file:
        assert file.read() == b"odd"


def test_nothing_is_read_again_when_nothing_changed(tree: Path, depot: Depot) -> None:
    settle(tree)
    first = snapshot.make(str(tree), depot)
    again = snapshot.make(str(tree), depot)
    assert (again.digest, again.read, again.new_bytes, again.files, again.bytes) == (
        first.digest, 0, 0, first.files, first.bytes,
    )  # fmt: skip
    (tree / "train.py").write_text("print(2)\n")
    changed = snapshot.make(str(tree), depot)
    assert (
        changed.digest != first.digest
        and changed.read == 1
        and changed.new_bytes == len("print(2)\n")
    )


def test_a_change_of_the_same_size_right_after_the_reading_is_seen(
    tree: Path, depot: Depot
) -> None:
    """The racy-git rule: the file's time may be the same as before."""
    digests = set()
    for number in range(10):
        (tree / "train.py").write_text(f"print({number})\n")
        digests.add(snapshot.make(str(tree), depot).digest)
    assert len(digests) == 10


def test_a_mode_alone_makes_another_snapshot(tree: Path, depot: Depot) -> None:
    settle(tree)
    first = snapshot.make(str(tree), depot)
    (tree / "train.py").chmod(0o755)
    assert snapshot.make(str(tree), depot).digest != first.digest


def test_git_ignores_untracked_files_and_submodules_are_as_git_has_them(
    tmp_path: Path, depot: Depot
) -> None:
    sub, root = tmp_path / "sub", tmp_path / "main"
    for folder, name in ((sub, "lib.py"), (root, "train.py")):
        folder.mkdir()
        git(folder, "init", "-q")
        write(folder, {name: "1", ".gitignore": "*.bin\n", "big.bin": "0"})
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "x")
    git(root, "submodule", "add", "-q", str(sub), "third/sub")
    write(
        root,
        {
            "untracked.py": "2",
            "train.py": "changed",
            "third/sub/new.py": "3",
            "__pycache__/x.pyc": "4",
        },
    )
    (root / ".gitmodules").unlink()  # deleted, still listed by git
    made = snapshot.make(str(root), depot)
    assert paths(depot, made.digest) == [
        ".gitignore", "third/sub/.gitignore", "third/sub/lib.py", "third/sub/new.py", "train.py", "untracked.py",
    ]  # fmt: skip
    entry = next(e for e in depot.manifest(made.digest) if e.path == "train.py")
    assert depot.read(entry.digest) == b"changed"


def test_a_folder_that_git_could_not_read_is_told(
    tree: Path, depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In git's own words: root, who may run this test, can read everything."""
    real = needs.tool("git", "git")
    git(tree, "init", "-q")
    program = tree.parent / "bin" / "git"
    program.parent.mkdir()
    warning = "warning: could not open directory 'pkg/closed/': Permission denied"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *ls-files*) echo "{warning}" >&2;; esac\nexec {real} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    made = snapshot.make(str(tree), depot)
    assert ("pkg/closed/", "it cannot be read: Permission denied") in made.left_out
    assert "train.py" in paths(depot, made.digest)


def test_a_submodule_that_is_not_there_is_told(tmp_path: Path, depot: Depot) -> None:
    root = tmp_path / "main"
    root.mkdir()
    git(root, "init", "-q")
    write(root, {"a.py": "1"})
    git(root, "add", "-A")
    git(
        root,
        "update-index",
        "--add",
        "--cacheinfo",
        "160000,1111111111111111111111111111111111111111,third",
    )
    (root / "third").mkdir()
    made = snapshot.make(str(root), depot)
    assert [path for path, why in made.left_out if "not checked out" in why] == ["third/"]


def test_what_is_left_out_is_told_by_name(
    tree: Path, depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "CODE_FILE_BYTES_MAX", 1000)
    write(tree, {".env": "KEY=1", "weights.pt": "w" * 2000, "pkg/id_rsa": "k"})
    (tree / "data").symlink_to("/usr/share")
    (tree / "up").symlink_to("../elsewhere")
    (tree / "sly").symlink_to("data/../../etc")
    os.mkfifo(tree / "pipe")
    made = snapshot.make(str(tree), depot)
    left = dict(made.left_out)
    assert set(left) == {".env", "weights.pt", "pkg/id_rsa", "data", "up", "sly", "pipe"}
    assert (
        "secrets" in left[".env"]
        and "MiB" in left["weights.pt"]
        and "leaves the tree" in left["sly"]
    )
    assert not set(left) & set(paths(depot, made.digest))


def test_what_is_allowed_by_name_is_taken(
    tree: Path, depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "CODE_FILE_BYTES_MAX", 1000)
    write(tree, {".env": "KEY=1", "weights.pt": "w" * 2000})
    (tree / "data").symlink_to("/usr/share")
    made = snapshot.make(str(tree), depot, CodeRules(allow=[".env", "weights.pt", "data"]))
    assert made.left_out == [] and {".env", "weights.pt", "data"} < set(paths(depot, made.digest))


def test_include_brings_back_and_exclude_is_stronger(tree: Path, depot: Depot) -> None:
    git(tree, "init", "-q")
    write(
        tree,
        {
            ".gitignore": "gen/\n",
            "gen/a.py": "1",
            "gen/b.py": "2",
            "gen/sub/c.py": "3",
            "notes/n.md": "4",
        },
    )
    rules = CodeRules(include=["gen/*.py", "gen/sub"], exclude=["gen/b.py", "notes/"])
    found = paths(depot, snapshot.make(str(tree), depot, rules).digest)
    assert {"gen/a.py", "gen/sub/c.py"} < set(found) and not {"gen/b.py", "notes/n.md"} & set(found)


def test_too_large_a_tree_is_refused(
    tree: Path, depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "CODE_FILES_MAX", 3)
    with pytest.raises(RefusedError, match="6 files"):
        snapshot.make(str(tree), depot)


def test_an_existing_folder_is_not_written_over_unless_asked(
    tree: Path, depot: Depot, tmp_path: Path
) -> None:
    digest = snapshot.make(str(tree), depot).digest
    out = tmp_path / "out"
    write(out, {"mine.txt": "keep", "train.py": "old"})
    with pytest.raises(RefusedError, match="there already"):
        checkout.restore(depot, digest, str(out))
    assert (out / "train.py").read_text() == "old"
    checkout.restore(depot, digest, str(out), force=True)
    assert (out / "train.py").read_text() == "print(1)\n" and (
        out / "mine.txt"
    ).read_text() == "keep"


def test_force_never_writes_through_a_link(tree: Path, depot: Depot, tmp_path: Path) -> None:
    digest = snapshot.make(str(tree), depot).digest
    (tmp_path / "victim").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/pkg").symlink_to(tmp_path / "victim")
    with pytest.raises(RefusedError, match="not a folder"):
        checkout.restore(depot, digest, str(tmp_path / "out"), force=True)
    assert list((tmp_path / "victim").iterdir()) == []


@pytest.mark.parametrize(
    "names",
    [["../x"], ["/etc/x"], ["a/../../x"], ["a//b"], ["./a"], [""], ["a", "a/b"], ["a", "a"]],
)
def test_a_manifest_that_leaves_the_tree_is_damaged(depot: Depot, names: list[str]) -> None:
    """B20, B22: also one whose digest is right."""
    data = manifests.encode(Entry(name, "f", "0" * 64, 1) for name in names)
    with pytest.raises(DamagedError):
        manifests.parse(data, manifests.digest_of(data))


def test_every_flipped_bit_is_found(tree: Path, depot: Depot, tmp_path: Path) -> None:
    digest = snapshot.make(str(tree), depot).digest
    pack = next((depot.folder / "packs").iterdir())
    whole = pack.read_bytes()
    for position in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        pack.write_bytes(damaged)
        fresh = Depot(depot.folder)
        try:
            checkout.restore(fresh, digest, str(tmp_path / f"out{position}"))
            assert position < 8  # the mark at the front is not needed to read it
        except DamagedError:
            assert not (tmp_path / f"out{position}").exists()
        finally:
            fresh.close()


def test_a_damaged_manifest_is_not_laid_out(tree: Path, depot: Depot, tmp_path: Path) -> None:
    digest = snapshot.make(str(tree), depot).digest
    path = depot.folder / "manifests" / digest
    path.write_bytes(path.read_bytes().replace(b"train.py", b"trait.py"))
    with pytest.raises(DamagedError):
        checkout.restore(depot, digest, str(tmp_path / "out"))


def test_only_what_is_missing_travels(tree: Path, depot: Depot, tmp_path: Path) -> None:
    far = Depot(tmp_path / "far")
    first = snapshot.make(str(tree), depot).digest
    digests = [entry.digest for entry in depot.manifest(first)]
    with pytest.raises(NotFoundError, match="have not come"):
        far.take_manifest(depot.manifest_bytes(first), first)
    depot.write_pack(far.missing(digests), tmp_path / "one.pack")
    assert far.take_pack(tmp_path / "one.pack") == len(set(digests))
    far.take_manifest(depot.manifest_bytes(first), first)
    (tree / "new.py").write_text("new")
    second = snapshot.make(str(tree), depot).digest
    assert len(far.missing(entry.digest for entry in depot.manifest(second))) == 1
    assert checkout.restore(far, first, str(tmp_path / "out")) == 6


def test_gc_keeps_what_jobs_need_and_what_is_fresh(
    tree: Path, depot: Depot, tmp_path: Path
) -> None:
    digests = []
    for number in range(3):
        write(tree, {"train.py": f"{number}" * 1000})
        digests.append(snapshot.make(str(tree), depot).digest)
    kept, unused, fresh = digests
    for digest in (kept, unused):
        os.utime(depot.folder / "manifests" / digest, (1, 1))
    assert depot.collect([kept], dry_run=True).snapshots == 1 and depot.has(unused)
    assert depot.collect([kept]).bytes == 1000
    assert not depot.has(unused)
    for digest in (kept, fresh):
        checkout.restore(Depot(depot.folder), digest, str(tmp_path / digest))
    write(tree, {"train.py": "1" * 1000})
    assert snapshot.make(str(tree), depot).digest == unused  # its content comes back with it


def test_many_small_packs_become_one(
    tree: Path, depot: Depot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("headway.code.depot.CODE_PACKS_MAX", 4)
    digests = []
    for number in range(12):
        write(tree, {f"f{number}.py": str(number)})
        digests.append(snapshot.make(str(tree), depot).digest)
    assert len(list((depot.folder / "packs").iterdir())) <= 5
    for digest in digests:
        checkout.restore(depot, digest, str(tmp_path / digest))


def test_several_at_once_make_the_same_snapshot(tree: Path, tmp_path: Path) -> None:
    write(tree, {f"m{number}.py": f"{number}" * 500 for number in range(200)})
    found: list[str] = []

    def work() -> None:
        depot = Depot(tmp_path / "home" / "code")
        found.append(snapshot.make(str(tree), depot).digest)
        depot.collect([], keep_s=3600)
        depot.close()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6 and len(set(found)) == 1
    assert (
        checkout.restore(Depot(tmp_path / "home" / "code"), found[0], str(tmp_path / "out")) == 206
    )


def test_a_jobs_folder_goes_when_it_is_as_it_was(tree: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    digest = snapshot.make(str(tree), Depot(home / "code")).digest
    for uuid, writes, gone in (
        ("a", "", True),
        ("b", "model.pt", False),
        ("c", "pkg/__pycache__/model.pyc", True),
    ):
        folder = Path(checkout.prepare(str(home), digest, uuid))
        assert checkout.prepare(str(home), digest, uuid) == str(folder)
        settle(folder)
        if writes:
            write(folder, {writes: "x"})
        assert checkout.remove_unchanged(home, uuid) is gone and folder.exists() is not gone


KILLED = """
import sys
from pathlib import Path
from headway.code import snapshot
from headway.code.depot import Depot
print("ready", flush=True)
print(snapshot.make(sys.argv[1], Depot(Path(sys.argv[2]))).digest, flush=True)
"""


def test_a_kill_at_any_sync_or_rename_leaves_the_store_whole(tree: Path, tmp_path: Path) -> None:
    """strace kills it at the Nth call, for every N until it gets through; then it is made in the
    same place.
    """
    strace = needs.strace()
    write(tree, {f"m{number}.py": f"{number}" * 300 for number in range(30)})
    expected = snapshot.make(str(tree), Depot(tmp_path / "good")).digest
    kills = 0
    for call in ("fsync", "rename"):
        for number in range(1, 10):
            home = tmp_path / f"{call}{number}"
            done = subprocess.run(
                [strace, "-f", "-o", "/dev/null", "-e", f"inject={call}:signal=SIGKILL:when={number}",
                 sys.executable, "-c", KILLED, str(tree), str(home)],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            for name in [
                path.name for path in (home / "manifests").iterdir() if path.suffix != ".tmp"
            ]:
                checkout.restore(Depot(home), name, str(home / "out"))
            assert snapshot.make(str(tree), Depot(home)).digest == expected
            Depot(home).collect([expected])
            assert not list(home.rglob("*.tmp"))
            if done.returncode == 0:
                break
            kills += 1
    assert kills >= 6


def test_what_was_taken_is_judged_anew_when_a_rule_has_changed(
    tmp_path: Path, depot: Depot
) -> None:
    """Unchanged files are taken over without a look at the rules only while those are the same."""
    root = tmp_path / "repo"
    write(root, {"a.py": "1", "sub/b.txt": "2", "sub/c.txt": "3", ".env.example": "x"})
    git(root, "init", "-q")
    settle(root)

    def found(**rules: list[str]) -> list[str]:
        made = snapshot.make(str(root), depot, CodeRules(**rules))
        return [
            path
            for path in paths(depot, made.digest)
            if ".hwignore" not in path and ".env" not in path
        ]

    assert found() == found() == ["a.py", "sub/b.txt", "sub/c.txt"]
    write(root, {".hwignore": "b.txt\n"})
    assert found() == found() == ["a.py", "sub/c.txt"]
    (root / ".hwignore").unlink()
    write(root, {"sub/.hwignore": "c.txt\n"})
    assert found() == found() == ["a.py", "sub/b.txt"]
    assert found(exclude=["sub/"]) == found(exclude=["sub/"]) == ["a.py"]
    assert (
        found(include=["sub/c.txt"])
        == found(include=["sub/c.txt"])
        == ["a.py", "sub/b.txt", "sub/c.txt"]
    )
    (root / "sub/.hwignore").unlink()
    (root / "sub/b.txt").unlink()
    write(root, {"sub/d.txt": "4"})
    assert found() == found() == ["a.py", "sub/c.txt", "sub/d.txt"]


def test_in_a_work_tree_only_what_is_new_or_changed_is_read(tmp_path: Path, depot: Depot) -> None:
    """Files are compared while git still lists: what it then does not list any more is not taken
    over.
    """
    root = tmp_path / "repo"
    write(root, {"a.py": "1", "b.py": "22", "sub/c.py": "333", "sub/d.py": "4444", "e.txt": "5"})
    git(root, "init", "-q")
    settle(root)
    first = snapshot.make(str(root), depot)
    again = snapshot.make(str(root), depot)
    assert (again.digest, again.read, again.bytes) == (first.digest, 0, 11)
    write(root, {"b.py": "2 more", "sub/new.py": "6", ".gitignore": "*.txt\n"})
    (root / "a.py").unlink()
    changed = snapshot.make(str(root), depot)
    assert paths(depot, changed.digest) == [
        ".gitignore",
        "b.py",
        "sub/c.py",
        "sub/d.py",
        "sub/new.py",
    ]
    assert changed.read == 3
    entry = next(e for e in depot.manifest(changed.digest) if e.path == "b.py")
    assert depot.read(entry.digest) == b"2 more"


def test_outside_of_git_data_and_what_was_built_are_left_out_and_told(
    tree: Path, depot: Depot
) -> None:
    write(tree, {"data/a.bin": "x", "assets/log": "x", "output/m.pt": "x", "lib/fast.so": "x"})
    write(tree, {"datasets/__init__.py": "", "datasets/voc.py": ""})
    made = snapshot.make(str(tree), depot)
    assert {"data/", "assets/", "output/"} <= set(dict(made.left_out))
    taken = set(paths(depot, made.digest))
    assert not taken & {"data/a.bin", "assets/log", "output/m.pt", "lib/fast.so"}
    assert "datasets/voc.py" in taken  # a folder with Python files is code
    again = snapshot.make(str(tree), depot, CodeRules(include=["data/"]))
    assert "data/a.bin" in set(paths(depot, again.digest))
