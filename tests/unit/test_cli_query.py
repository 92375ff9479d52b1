"""`hw q`: what of a job's many trackers it shows."""

from headway.views.cli.query import _progress_words


def test_of_many_trackers_those_that_run_are_shown_and_the_newest() -> None:
    names = ["outer", *(f"inner {n}" for n in range(12))]
    states = ["running", *["completed"] * 12]
    trackers = [
        {"msg": [name], "completed": 1, "total": 2, "rank": 0, "state": state}
        for name, state in zip(names, states, strict=True)
    ]
    words = _progress_words(trackers)
    assert words[0].startswith("outer") and words[1].startswith("inner 5") and words[-2].startswith("inner 11")
    assert words[-1] == "and 5 more, see --json"
    assert len(_progress_words(trackers[:3])) == 3
