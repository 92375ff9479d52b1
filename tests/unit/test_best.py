"""The best value of a metric at the end of a run, of those whose name says which way is better."""

from typing import Any

import pytest

from headway.model.errors import UnreachableError
from headway.views.text import best, job_text
from headway.views.text.best import Best
from headway.views.text.terminal import Output


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("loss", min), ("train/loss", min), ("valLoss", min), ("val_error", min), ("test.rmse", min), ("wer", min),
        ("accuracy", max), ("val_acc", max), ("top1_accuracy", max), ("mIoU", max), ("miou", max), ("f1", max),
        ("F1-score", max), ("lr", None), ("loss_scale", None), ("glossary", None), ("accuracy_loss", None),
        ("grad_norm", None), ("", None), ("speed", None), ("error_rate", min),
    ],
)  # fmt: skip
def test_a_name_says_which_way_is_better_or_nothing_is_claimed(name: str, way: Any) -> None:
    assert best.better(name) is way


def job(**more: Any) -> dict[str, Any]:
    return {
        "id": "digits-7f3c2",
        "state": "succeeded",
        "elapsed_s": 124.0,
        "metrics": {"loss": 0.031, "lr": 0.1},
    } | more


class Server:
    """Answers one question, and keeps what was asked."""

    def __init__(self, series: Any) -> None:
        self.series, self.asked = series, list[Any]()

    def get(self, route: str, query: Any) -> Any:
        self.asked.append((route, query))
        return {"digits-7f3c2": self.series}


def test_the_best_of_all_attempts_is_found_with_the_first_step_that_had_it() -> None:
    series = [
        {"attempt": 1, "step": [0, 5], "value": [0.5, 0.03]},
        {"attempt": 2, "step": [6, 7, 8], "value": [0.03, "NaN", "-Infinity"]},
    ]
    server = Server({"loss": series})
    assert best.ask(job(), lambda question: question(server)) == {"loss": Best(0.03, 5)}
    assert dict(server.asked[0][1])["name"] == ["loss"]


def test_nothing_is_asked_of_a_failed_job_or_one_without_such_metrics() -> None:
    server = Server({})
    for one in (job(state="failed"), job(metrics={"lr": 1.0}), job(metrics=None)):
        assert best.ask(one, lambda question: question(server)) == {}
    assert server.asked == []


def test_a_server_that_is_away_costs_the_best_value_only() -> None:
    def gone(_: Any) -> Any:
        raise UnreachableError("gone")

    assert best.ask(job(), gone) == {}


def lines(found: dict[str, Any], columns: int | None, known: dict[str, Best]) -> list[str]:
    out = Output(1, color="never", ascii_only=False)
    out.columns = columns
    return job_text.end_lines(found, [], out, known)


def test_the_end_of_a_run_tells_the_best_value_and_the_peak() -> None:
    done, known = (
        job(usage={"peak_memory_bytes": 2 << 30, "peak_rank": 0}),
        {"loss": Best(0.03, 9400)},
    )
    whole = "loss 0.031 (best 0.03 at step 9400)   lr 0.1"
    assert (
        lines(done, None, known)[0]
        == f"✓ digits-7f3c2 succeeded in 2 min 04 s    {whole}   peak 2.0 GiB"
    )
    assert lines(done, 80, known)[:2] == [
        "✓ digits-7f3c2 succeeded in 2 min 04 s",
        f"  {whole}   peak 2.0 GiB",
    ]
    assert lines(done, 46, known)[:3] == [
        "✓ digits-7f3c2 succeeded in 2 min 04 s", "  loss 0.031 (best 0.03 at step 9400)   lr 0.1", "  peak 2.0 GiB",
    ]  # fmt: skip


def test_a_last_value_that_is_the_best_needs_no_more_words_and_nan_does() -> None:
    assert "best" not in lines(job(), None, {"loss": Best(0.031, 7)})[0]
    bad = job(
        metrics={"loss": "NaN"}, processes=4, usage={"peak_memory_bytes": 1 << 20, "peak_rank": 3}
    )
    assert lines(bad, None, {"loss": Best(0.5, 2)})[0].endswith(
        "loss nan (best 0.5 at step 2)   peak 1.0 MiB (rank 3)"
    )
