"""The list of all open jobs: rows, choosing, jobs that end meanwhile, an older server."""

from pathlib import Path
from typing import Any

from headway.views.api.http_client import Client
from headway.views.api.source import Source
from headway.views.console.cells import cells, text_of
from headway.views.console.feed import JobsFeed
from headway.views.console.jobs_view import JobsView, _note
from headway.views.console.machine_load import MachineLoad
from headway.views.console.theme import Theme
from headway.views.text import format as fmt
from tests.console_model import NOW, at, progress


def view(*jobs: dict[str, Any]) -> JobsView:
    feed = JobsFeed(Source(Path("/nowhere"), Client(Path("/nowhere/s.sock"))), lambda: None, [])
    made = JobsView(feed, lambda: NOW)
    made.take(list(jobs))
    return made


def job(number: int, state: str = "running", **more: Any) -> dict[str, Any]:
    found = {
        "id": f"digits-7f3c{number}",
        "name": "digits",
        "state": state,
        "started_at": at(0),
        "submitted_at": at(-2),
    }
    return found | {"metrics": {"loss": 0.5}, "elapsed_s": 12.0} | more


def picture(made: JobsView, columns: int = 100, rows: int = 12) -> str:
    lines = made.frame((columns, rows), Theme())
    assert len(lines) == rows and max(cells(one) for one in lines) <= columns
    return "\n".join(text_of(one).rstrip() for one in lines)


def test_each_job_is_a_line_with_progress_usage_and_metrics() -> None:
    usage = {"cpu_percent": 95.0, "memory_bytes": 1 << 30, "ranks": 4}
    shown = picture(
        view(job(1, progress=progress(2), usage=usage), job(2, "waiting", started_at=None))
    )
    assert "1 running · 1 waiting" in shown
    assert "› 7f3c1  digits  ● running   37 %  left 1:12     0:41  380 %  4.0 GiB" in shown
    assert "waits for 0:43" in shown


def test_the_chosen_job_stays_chosen_and_enter_opens_it() -> None:
    made = view(*(job(n) for n in range(6)))
    for key in ("down", "down", "down", "up"):
        assert made.press(key) is None
    made.take([job(n) for n in (5, 3, 2, 1)])
    assert "› 7f3c2" in picture(made)
    assert (made.press("enter"), made.opened) == ("open", "digits-7f3c2")
    assert made.press("end") is None and made.place.chosen == "digits-7f3c1"


def test_a_job_that_ended_meanwhile_stays_with_how_it_ended() -> None:
    made = view(job(1), job(2))
    made.take([job(2), job(1, "failed", exit_code=3, cause={"text": "CUDA out of memory"})])
    made.take([job(2)])
    shown = picture(made)
    assert "✗ failed" in shown and "CUDA out of memory" in shown


def test_many_jobs_scroll_with_the_chosen_one() -> None:
    made = view(*(job(1000 + n) for n in range(300)))
    made.press("end")
    assert "› 7f3c1299" in picture(made, rows=10)
    assert "no open jobs" in picture(view())


def test_text_of_a_job_is_made_safe_in_the_list() -> None:
    """Sec7."""
    made = view(
        job(1, name="\x1b[2Jx", metrics={"\x1b]0;t\x07": 1.0}),
        job(2, "failed", cause={"text": "a\nb\x9b"}),
    )
    assert all(text.isprintable() for line in made.frame((100, 12), Theme()) for text, _ in line)


def test_q_leaves_the_list() -> None:
    assert [view(job(1)).press(key) for key in ("q", "esc", "ctrl-c", "x")] == [
        "leave",
        "leave",
        "leave",
        None,
    ]


def test_a_job_whose_end_nobody_saw_is_over_although_it_stays_unknown() -> None:
    times = {"submitted_at": at(-60), "started_at": at(-60), "state_since": at(-50)}
    lost = job(
        1,
        "unknown",
        ended_at=at(-50),
        elapsed_s=10.0,
        cause={"text": "its agent was killed"},
        **times,
    )
    silent = job(2, "unknown", **times)
    waits = job(3, "waiting", **times | {"started_at": None}, waiting={"after": ["y-b2c3d"]})
    assert [fmt.is_over(one) for one in (lost, silent, waits)] == [True, False, False]
    told = [_note(one, NOW) for one in (lost, silent, waits)]
    assert told == [
        "its agent was killed",
        "last heard 1 min 31 s ago",
        "waits for 1:31, after b2c3d",
    ]


def test_the_list_is_filtered_as_one_types_and_esc_shows_all_again() -> None:
    made = view(job(1, name="digits"), job(2, name="mnist"))
    for key in ("/", *"mni", "enter"):
        made.press(key)
    assert "mnist" in picture(made) and "7f3c1" not in picture(made)
    assert made.press("esc") is None and "7f3c1" in picture(made)


def test_the_list_is_sorted_by_a_column_and_jobs_without_a_value_come_last() -> None:
    jobs = [
        job(n, metrics={"loss": value} if value else {}) for n, value in enumerate((2, None, 3))
    ]
    made = view(*jobs)
    while made.place.order != "loss":
        made.press("s")
    assert [one["id"][-1] for one in made.shown] == ["2", "0", "1"]
    made.press("S")
    assert [one["id"][-1] for one in made.shown] == ["0", "2", "1"]


def test_a_job_is_stopped_from_the_list_only_after_a_question() -> None:
    stopped: list[tuple[str, str]] = []
    made = view(job(1), job(2))
    made._stop = lambda job_id, deed: stopped.append((job_id, deed))
    made.press("down")
    made.press("x")
    assert "Stop 7f3c2?" in picture(made) and not stopped
    made.press("esc")
    made.press("t")
    assert not stopped
    for key in ("x", "i"):
        made.press(key)
    assert stopped == [("digits-7f3c2", "interrupt")]


def test_rows_of_a_sweep_show_their_parameters() -> None:
    made = view(job(1, parameters={"lr": 0.1}), job(2, parameters={"lr": 0.2}))
    assert "lr=0.1" in picture(made, 80) and "lr=0.2" in picture(made, 80)


def test_the_head_says_how_busy_the_machine_is(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu 10 0 10 80 0 0 0 0 0 0\n")
    (tmp_path / "loadavg").write_text("1.50 1.0 1.0 1/1 1\n")
    (tmp_path / "meminfo").write_text("MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n")
    assert MachineLoad(tmp_path).words()[1:] == ["load 1.5", "memory 4.0 GiB of 8.0 GiB"]
    assert MachineLoad(tmp_path / "absent").words() == []
