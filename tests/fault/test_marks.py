"""What people say of a job afterwards (`hw tag`, `star`, `bug`, `describe`, `rename`, PATCH), and how
they find it again.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from headway.home.connect import server_path
from headway.views.api.http_client import Client
from tests.driver import PYTHON, Hw


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    cwd = tmp_path / "work"
    cwd.mkdir()
    return Hw(home, cwd)


def ids(found: Any) -> set[str]:
    return {job["id"] for job in found}


def test_marks_stay_with_a_job_and_find_it_again(hw: Hw) -> None:
    first, second = hw.submit("--tag", "base", "true"), hw.submit("--name", "other", "true")
    for job in (first, second):
        hw.wait_ended(job)
    assert hw("tag", second, "good", "v2").returncode == 0
    assert hw("star", first).returncode == 0
    assert hw("bug", second).returncode == 0
    assert hw("describe", first, "the first try").returncode == 0
    assert hw("rename", second, "best-one").returncode == 0
    one, two = hw.json("q", first), hw.json("q", second)
    assert (one["tags"], one["star"], one["bug"], one["description"]) == (
        ["base"], True, False, "the first try",
    )  # fmt: skip
    assert (two["tags"], two["star"], two["bug"], two["name"]) == (
        ["good", "v2"], False, True, "best-one",
    )  # fmt: skip
    assert ids(hw.json("ls", "--tag", "good")) == {second}
    assert ids(hw.json("ls", "--tag", "base")) == {first}
    assert hw("tag", second, "good", "--remove").returncode == 0
    assert hw("star", first, "--remove").returncode == 0
    assert hw.json("q", second)["tags"] == ["v2"]
    assert hw.json("q", first)["star"] is False
    text = hw("q", first).stdout.decode()
    assert "the first try" in text


def test_the_route_refuses_marks_that_cannot_be(hw: Hw, home: Path) -> None:
    job = hw.submit("true")
    hw.wait_ended(job)
    client = Client(server_path(home))
    try:
        for body in ({"name": "a b"}, {"tags": ["x" * 1000]}, {"nonsense": 1}, {"star": "yes"}):
            answer = client.request("PATCH", f"/api/jobs/{job}", json.dumps(body).encode(), 30)
            assert answer.status == 400, (body, answer.body)
        answer = client.request("PATCH", f"/api/jobs/{job}", b'{"star": true}', 30)
        assert answer.status == 200 and json.loads(answer.body)["star"] is True
    finally:
        client.close()


def test_a_selection_by_age_comes_before_the_limit(hw: Hw) -> None:
    job = hw.submit("true")
    hw.wait_ended(job)
    assert hw.json("ls", "--older-than", "30d") == []
    assert ids(hw.json("ls", "--since", "1h")) == {job}


def test_a_program_that_raises_is_tried_again_when_any_failure_counts(hw: Hw) -> None:
    job = hw.submit("--retry", "1", "--retry-on", "any", PYTHON, "-c", "raise ValueError(1)")
    ended = hw.wait_ended(job, timeout_s=90)
    assert len(ended["attempts"]) == 2
    other = hw.wait_ended(hw.submit("--retry", "1", PYTHON, "-c", "raise ValueError(1)"))
    assert len(other["attempts"]) == 1
