"""Versions of artifacts are removed one by one; files that none has any more are collected."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.model.errors import NotFoundError
from headway.store import artifacts
from tests.storing import NOW_NS, Bench, bench


@pytest.fixture
def b(tmp_path: Path) -> Iterator[Bench]:
    made = bench(tmp_path / "home")
    yield made
    made.store.close()


def put(b: Bench, *contents: str) -> str:
    """A version of `model` with a file for each of these contents; its name."""
    files = []
    for number, text in enumerate(contents):
        data = text.encode()
        digest = hashlib.sha256(data).hexdigest()
        path = artifacts.blob_path(b.paths.artifacts, digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        files.append({"path": f"{number}.bin", "digest": digest, "size": len(data)})
    pk = b.write(lambda c: artifacts.add_version(c, "model", "model", files, {}, [], NOW_NS))
    rows = b.read(
        lambda c: c.execute("SELECT version FROM artifacts WHERE pk = ?", (pk,)).fetchone()
    )
    return f"model:v{rows['version']}"


def blobs(b: Bench) -> int:
    return len(list(b.paths.artifacts.glob("??/*")))


def test_a_removed_version_is_gone_and_its_number_is_not_given_again(b: Bench) -> None:
    first, second = put(b, "one"), put(b, "two")
    b.write(lambda c: artifacts.remove(c, second))
    with pytest.raises(NotFoundError):
        b.read(artifacts.find, second)
    assert b.read(artifacts.find, "model")["version"] == 0, "the latest is the one that is left"
    assert [row["version"] for row in b.read(artifacts.listing)] == ["v0"]
    assert put(b, "two") == "model:v2"
    b.write(lambda c: artifacts.remove(c, "model:v2"))
    b.write(lambda c: artifacts.remove(c, first))
    assert b.read(artifacts.listing) == []


def test_only_files_that_no_version_has_are_collected(b: Bench) -> None:
    first = put(b, "shared", "only here")
    put(b, "shared", "another")
    b.write(lambda c: artifacts.remove(c, first))
    assert b.store.gc_artifacts(grace_s=600) == 0, "a fresh file may wait for its version"
    assert b.store.gc_artifacts(dry_run=True, grace_s=-1) == len("only here") and blobs(b) == 3
    assert b.store.gc_artifacts(grace_s=-1) == len("only here") and blobs(b) == 2
    assert b.store.gc_artifacts(grace_s=-1) == 0
