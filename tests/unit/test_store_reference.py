"""What a word means that a person types for a job, and what people say of jobs afterwards."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from headway.model.errors import NotFoundError
from headway.model.job import Job, JobSpec
from headway.store import catalog, job_reference, listing
from headway.store.catalog import JobFilter
from tests.storing import Bench, bench


@pytest.fixture
def b(tmp_path: Path) -> Iterator[Bench]:
    made = bench(tmp_path)
    yield made
    made.store.close()


def add(b: Bench, name: str, seconds: int) -> Job:
    now_ns = b.job.submitted_ns + seconds * 10**9
    spec = JobSpec(["true"], "/", name)
    return b.write(lambda c: catalog.insert_job(c, str(uuid4()), spec, now_ns))


def test_last_is_the_newest_and_each_mark_one_before(b: Bench) -> None:
    older, newer = add(b, "a", 10), add(b, "b", 20)
    meant = {
        ref: b.read(job_reference.find_one, ref)["id"] for ref in ("last", "-", "last^", "last~1")
    }
    assert meant == {"last": newer.id, "-": newer.id, "last^": older.id, "last~1": older.id}
    with pytest.raises(NotFoundError):
        b.read(job_reference.find_one, "last~99")


def test_a_name_means_the_newest_job_that_has_it_and_this_is_said(b: Bench) -> None:
    add(b, "mnist", 10)
    newer = add(b, "mnist", 20)
    meant = b.read(job_reference.find_one, "mnist")
    assert meant["id"] == newer.id and "the newest of 2 with that name" in meant["said"]
    assert b.read(job_reference.find_one, newer.id)["said"] == ""
    assert b.read(job_reference.find_one, newer.id[-5:])["said"] == ""


def test_what_nobody_has_is_not_found(b: Bench) -> None:
    for ref in ("nope", "", "last^x", "üb"):
        with pytest.raises(NotFoundError):
            b.read(job_reference.find_one, ref)


def test_marks_are_kept_and_the_id_stays(b: Bench) -> None:
    job = add(b, "mnist", 10)
    changes = {"name": "best", "tags": ["x", "x", "y"], "star": True, "description": "first"}
    b.write(lambda c: catalog.set_marks(c, job.pk, changes))
    found = b.read(catalog.load_job, job.pk)
    assert (found.id, found.name, found.tags) == (job.id, "best", ["x", "y"])
    assert found.star and not found.bug and found.description == "first"
    assert b.read(job_reference.find_one, "best")["id"] == job.id
    rows = b.read(listing.rows, JobFilter(), 0)
    row = next(one for one in rows if one["id"] == job.id)
    assert (row["name"], row["star"], row["description"]) == ("best", True, "first")
