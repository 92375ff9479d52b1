"""Slots and bars become `progress` facts: changed ones, not too often, and in the end as they were
left (18–24).
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.agent.clock import Clock
from headway.agent.observe import progress_facts as watching
from headway.agent.observe.progress_facts import ProgressWatch
from headway.agent.observe.rate import Pace, eta_s, rate_of
from headway.agent.ship.tail import Tail
from headway.client.progress import Progress, Slots
from headway.model.limits import PROGRESS_SLOT_BYTES
from headway.model.record import FACT
from headway.spool.progress_slots import FAILED, decode
from headway.testing.filesystems import FailingFiles
from headway.wire import frame
from tests import streams
from tests.client_bench import Bench
from tests.fault.agent_rig import Rig, script

NOBODY = 99_999_999


class Watch:
    """A client's spool, and the part of the shipper that reads it."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.bench = Bench(folder)
        self.slots = Slots(self.bench.run)
        self.said: list[str] = []
        self.tail = Tail(str(folder), Clock(), {})
        self.watch = ProgressWatch(
            str(folder),
            self.tail,
            Clock(),
            lambda: [b"hunter2-hunter2"],
            self.said.append,
            **options,
        )
        self.now_s = 0.0

    def new(self, total: float | None, msg: object) -> Progress:
        tracker = Progress(self.slots, total, msg)
        tracker._put(1)
        return tracker

    def look(self, later_s: float = 1.0, *, last: bool = False) -> None:
        self.now_s += later_s
        self.tail.look(self.now_s, names=True)
        self.watch.look(self.now_s, last=last)

    def told(self) -> list[dict[str, Any]]:
        return told(self.bench.folder)


def told(folder: Path) -> list[dict[str, Any]]:
    found = []
    for stream in streams.streams(folder, "tracks"):
        frames = streams.frames_of(folder, stream.name)
        found += [frame.decode_json(payload) for kind, payload in frames if kind == FACT]
    return found


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    made = Watch(tmp_path / "spool")
    yield made
    made.watch.close()


def test_a_tracker_is_told_when_it_has_changed_and_only_then(watch: Watch) -> None:
    tracker = watch.new(10, ("train", "epoch 1"))
    for _ in range(3):
        watch.look()
    tracker.advance(4)
    watch.look()
    first, second = watch.told()
    assert (first["completed"], second["completed"], second["total"]) == (0, 4, 10)
    assert (
        second["msg"] == ["train", "epoch 1"]
        and second["source"] == "api"
        and second["state"] == "running"
    )
    assert (second["rank"], second["pid"], second["tracker"]) == (0, os.getpid(), 0)
    assert second["rate"] > 0 and second["eta_s"] >= 0


def test_a_fast_tracker_is_told_five_times_a_second_and_its_last_state_always(watch: Watch) -> None:
    tracker = watch.new(None, "fast")
    for _ in range(100):
        tracker.advance()
        watch.look(0.01)
    tracker.complete()
    watch.look(0.01)
    watch.look(0.3)
    assert len(watch.told()) <= 7
    assert [(f["completed"], f["state"]) for f in watch.told()][-1] == (100, "completed")


def test_what_still_runs_at_the_end_is_closed_where_it_was(watch: Watch) -> None:
    tracker = watch.new(10, "killed")
    tracker.advance(3)
    watch.look()
    watch.look(last=True)
    assert [(f["completed"], f["state"]) for f in watch.told()] == [(3, "running"), (3, "closed")]
    tracker.advance()
    watch.look()
    assert len(watch.told()) == 2, "it is over"


def test_the_file_of_a_process_that_is_gone_is_told_and_removed(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch.new(10, "gone").advance(2)
    file = next(watch.bench.folder.glob("progress-*"))
    file.rename(file.with_name(f"progress-3-{NOBODY}-abcdef"))
    watch.look(10.0)
    watch.look(10.0)
    assert {(f["rank"], f["pid"], f["completed"], f["state"]) for f in watch.told()} >= {
        (3, NOBODY, 2, "closed")
    }
    assert not list(watch.bench.folder.glob("progress-*"))


def test_a_half_written_slot_is_not_told(watch: Watch) -> None:
    tracker = watch.new(10, "torn")
    watch.look()
    tracker.advance()
    file = next(watch.bench.folder.glob("progress-*"))
    data = bytearray(file.read_bytes())
    data[20] ^= 0xFF
    file.write_bytes(data)
    watch.look()
    assert len(watch.told()) == 1
    tracker.advance()
    watch.look()
    assert watch.told()[-1]["completed"] == 2


def test_a_share_makes_the_empty_tracker_of_its_maker_a_share_too(watch: Watch) -> None:
    """`distributed=True`: the process that made it and leaves the work to others must not show a
    second bar.
    """
    made, share = watch.new(10, "shared"), watch.new(10, "shared")
    watch.look()
    share.advance(4, distributed=True)
    watch.look()
    watch.look()
    last = {fact["tracker"]: fact for fact in watch.told()}
    assert [(f["completed"], f["distributed"], f["eta_s"]) for f in last.values()] == [
        (0, True, None),
        (4, True, None),
    ]
    assert made.state == share.state


def test_bars_in_the_output_are_told_by_stream_and_label(watch: Watch) -> None:
    with (watch.bench.folder / "stderr-2").open("ab", buffering=0) as out:
        out.write(b"start\n\rhunter2-hunter2:  10%|#  | 1/10 [00:01<00:09, 1.00it/s]")
        watch.look()
        out.write(b"\rhunter2-hunter2:  20%|## | 2/10 [00:02<00:08, 1.00it/s]" * 500)
        watch.look()
        watch.look()
        out.write(b"\rhunter2-hunter2: 100%|###| 10/10 [00:10<00:00, 1.00it/s]\n")
        watch.look(0.0, last=True)
    facts = watch.told()
    assert [(f["completed"], f["state"], f["eta_s"]) for f in facts] == [
        (1, "running", 9), (2, "running", 8), (10, "completed", 0),
    ]  # fmt: skip
    assert {(f["rank"], f["source"], f["tracker"], *f["msg"]) for f in facts} == {
        (2, "output", 5000, "********")
    }


def test_a_bar_of_rich_that_is_done_has_no_time_left(watch: Watch) -> None:
    with (watch.bench.folder / "stdout-0").open("ab", buffering=0) as out:
        out.write("load ━━━━━━━━━━ 100% 0:00:07\n".encode())  # the time that it took
        watch.look(0.0, last=True)
    (found,) = watch.told()
    assert (found["msg"], found["state"], found["eta_s"]) == (["load"], "completed", 0.0)


def test_a_tracker_that_has_ended_tells_the_rate_of_its_life_and_no_time_left_that_never_comes(
    watch: Watch,
) -> None:
    tracker = watch.new(10, "epoch")
    tracker.advance(2)
    tracker._end(FAILED)
    watch.look()
    (told,) = watch.told()
    assert told["state"] == "failed" and told["eta_s"] is None
    (data,) = [file.read_bytes() for file in watch.bench.folder.glob("progress-*")]
    slot = decode(data[:PROGRESS_SLOT_BYTES])
    assert slot is not None and told["rate"] == 2 / ((slot.updated_ns - slot.started_ns) / 1e9)


def test_a_failing_disk_is_tried_again(tmp_path: Path) -> None:
    files = FailingFiles(0, errno.ENOSPC, times=3, only=frozenset({"write"}))
    watch = Watch(tmp_path / "spool", files=files)
    watch.new(10, "x").advance()
    for _ in range(6):
        watch.look()
    assert [f["completed"] for f in watch.told()] == [1] and not watch.said
    watch.watch.close()


def test_a_full_segment_is_followed_by_the_next(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "SEGMENT_BYTES", 1000)
    tracker = watch.new(100, "x")
    for _ in range(20):
        tracker.advance()
        watch.look()
    assert len(streams.streams(watch.bench.folder, "tracks")) > 2
    assert [f["completed"] for f in watch.told()] == list(range(1, 21))


# -- rates


def test_a_pause_does_not_spoil_the_rate() -> None:
    pace, now_s = Pace(), 0.0
    for i in range(20):
        now_s += 60.0 if i == 10 else 3.0
        pace.add(now_s, 30.0 * i)
    assert rate_of(pace.samples, now_s) == pytest.approx(10.0, rel=0.05)


def test_a_tracker_that_stands_still_slows_down() -> None:
    pace = Pace()
    for i in range(10):
        pace.add(3.0 * i, 30.0 * i)
    running, stalled = rate_of(pace.samples, 28.0), rate_of(pace.samples, 500.0)
    assert running == pytest.approx(10.0) and stalled is not None and stalled < 1.0


def test_a_tracker_that_goes_back_starts_over() -> None:
    pace = Pace()
    pace.add(0.0, 50.0)
    pace.add(5.0, 100.0)
    pace.add(6.0, 1.0)
    assert rate_of(pace.samples, 6.0) is None
    pace.add(16.0, 21.0)
    assert rate_of(pace.samples, 16.0) == 2.0


def test_the_time_to_go() -> None:
    assert eta_s(50, 100, 10.0) == 5.0 and eta_s(100, 100, None) == 0.0
    assert (
        eta_s(50, None, 10.0) is None
        and eta_s(50, 100, None) is None
        and eta_s(50, 100, 0.0) is None
    )


# -- with the real agent

TRAIN = """
import headway as hw, logging, os, signal, sys
logging.info("hello", "from", os.environ["RANK"])
with hw.Progress.new(20, "done") as progress:
    for _ in range(20):
        progress.advance()
left = hw.Progress.new(100, "left")
left.advance(7)
print("\\r 50%|##  | 5/10 [00:01<00:01, 5.00it/s]", file=sys.stderr, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_program_had_reached_arrives(home: Path) -> None:
    """Slots, log records and bars of a real process under the real agent; SIGKILL leaves no time
    for last words.
    """
    with Rig(home) as rig:
        task = rig.start(rig.make(*script(TRAIN)))
        rig.finish(task)
        facts = rig.server.facts()
    last = {(f["source"], *f["msg"]): f for f in facts if f["type"] == "progress"}
    assert {key: (f["completed"], f["state"]) for key, f in last.items()} == {
        ("api", "done"): (20, "completed"), ("api", "left"): (7, "closed"), ("output", ""): (5, "closed"),
    }  # fmt: skip
    assert [f["text"] for f in facts if f["type"] == "log"] == ["hello from 0"]


@pytest.mark.cap(24)
def test_a_loss_that_is_only_printed_becomes_a_metric(tmp_path: Path) -> None:
    w = Watch(folder := tmp_path / "task")
    out = folder / "stdout-3"
    for text in (
        "iter: 10 loss: 0.5 eta: 1:00\n",
        "iter: 20 loss: nan eta: 0:50\n",
        "iter: 5 loss: 0.25 eta: 1:00\n",
    ):
        with open(out, "a") as file:
            file.write(text)
        w.look()
    w.look(last=True)
    (stream,) = streams.streams(folder, "metrics")
    found = [(point.name, point.step, repr(point.value)) for point in streams.points(folder)]
    assert stream.rank == 3
    assert frame.decode_json(streams.frames_of(folder, stream.name)[0][1])["source"] == "output"
    assert found == [("loss", 10, "0.5"), ("loss", 20, "nan"), ("loss", 25, "0.25")]


def test_a_metric_that_the_tail_has_not_come_to_counts_before_the_first_printed_one(
    tmp_path: Path,
) -> None:
    w = Watch(folder := tmp_path / "task")
    (folder / "stdout-0").touch()
    w.look()
    (folder / f"metrics-0-{NOBODY}-abcdef.0").touch()  # after the tail's look, and before the line
    (folder / "stdout-0").write_text("iter: 10 loss: 0.5 eta: 1:00\n")
    w.watch.look(w.now_s + 1.0, last=True)
    assert [stream.pid for stream in streams.streams(folder, "metrics")] == [NOBODY]


def test_an_agent_goes_on_with_what_is_printed_where_the_one_before_it_was_killed(
    tmp_path: Path,
) -> None:
    w = Watch(folder := tmp_path / "task")
    (folder / "stdout-0").write_text("iter: 10 loss: 0.5 eta: 1:00\n")
    w.look()
    (before,) = streams.streams(folder, "metrics")
    (folder / before.name).rename(folder / before.name.replace(str(os.getpid()), str(NOBODY)))
    w.tail = Tail(str(folder), Clock(), {})
    w.watch = ProgressWatch(str(folder), w.tail, Clock(), list, w.said.append)
    with open(folder / "stdout-0", "a") as file:
        file.write("iter: 20 loss: 0.25 eta: 0:50\n")
    w.look()
    w.look(last=True)
    assert {stream.pid for stream in streams.streams(folder, "metrics")} == {NOBODY, os.getpid()}


def test_what_a_program_prints_is_no_metric_where_it_logs_its_own(tmp_path: Path) -> None:
    w = Watch(folder := tmp_path / "task")
    w.bench.log({"loss": 1.0})
    (own,) = streams.streams(folder, "metrics")
    (folder / own.name).rename(folder / own.name.replace(str(os.getpid()), str(NOBODY)))
    (folder / "stdout-0").write_text("iter: 10 loss: 0.5 eta: 1:00\n")
    w.look()
    w.look(last=True)
    assert [stream.pid for stream in streams.streams(folder, "metrics")] == [NOBODY]


# -- what follows from the lines together


def write(watch: Watch, name: str, text: str) -> None:
    with open(watch.bench.folder / name, "ab", buffering=0) as file:
        file.write(text.encode())


def points(watch: Watch, name: str) -> list[tuple[int, float]]:
    found = streams.points(watch.bench.folder)
    return [(point.step, point.value) for point in found if point.name == name]


def last_of(watch: Watch) -> dict[str, dict[str, Any]]:
    """By label: as told last."""
    return {fact["msg"][0]: fact for fact in watch.told()}


def bar(label: str, done: int, total: int, more: str = "") -> str:
    percent = 100 * done // total
    return f"\r{label}: {percent}%|##   | {done}/{total} [00:01<00:01, 9.00it/s{more}]"


def test_steps_of_a_bar_per_epoch_and_of_the_line_at_its_end_are_those_of_the_run(
    watch: Watch,
) -> None:
    for epoch in range(3):
        for done in (16, 32, 64):
            loss = epoch * 64 + done
            write(watch, "stderr-0", bar(f"epoch {epoch}", done, 64, f", loss={loss}"))
            watch.look()
        write(watch, "stderr-0", "\n")
        write(watch, "stdout-0", f"epoch {epoch}: loss 0.{epoch} val_acc 0.9\n")
        watch.look()
    watch.look(last=True)
    assert [step for step, _ in points(watch, "loss")] == [16, 32, 64, 80, 96, 128, 144, 160, 192]
    assert all(step == value for step, value in points(watch, "loss"))
    assert points(watch, "val_acc") == [(64, 0.9), (128, 0.9), (192, 0.9)]
    assert points(watch, "epoch/loss") == [(64, 0.0), (128, 0.1), (192, 0.2)]


def test_lines_of_hf_trainer_have_the_step_of_the_bar_below_them(watch: Watch) -> None:
    blank = "\r" + " " * 40 + "\r"
    write(watch, "stderr-0", "\r  0%|     | 0/100 [00:00<?, ?it/s]")
    watch.look()
    for step in (10, 20, 30):  # faster than anybody looks
        write(watch, "stdout-0", f"{{'loss': '{step}', 'epoch': '0.{step}'}}\n")
        write(watch, "stderr-0", f"{blank}\r {step}%|#    | {step}/100 [00:01<00:09, 9.1it/s]")
    watch.look()
    watch.look(5.0)
    watch.look(last=True)
    assert points(watch, "loss") == [(10, 10.0), (20, 20.0), (30, 30.0)]


def test_every_line_counts_however_many_come_at_once(watch: Watch) -> None:
    lines = []
    for step in range(5_000):
        lines.append(f"iter {step}: loss {step}.0, time 3.0ms, mfu 1.0%")
        if step % 500 == 0:
            lines.append(f"step {step}: train loss 1.0, val loss {step}.0")
    write(watch, "stdout-0", "\n".join(lines) + "\n")
    watch.look()
    watch.look(last=True)
    assert points(watch, "val_loss") == [(step, float(step)) for step in range(0, 5_000, 500)]
    losses = points(watch, "loss")
    assert losses[-1] == (4_999, 4_999.0) and len(losses) > 20
    assert all(step == value for step, value in losses)


def test_a_bar_that_is_wiped_away_is_closed(watch: Watch) -> None:
    write(watch, "stderr-0", bar("Sanity Checking", 1, 2))
    watch.look()
    write(watch, "stderr-0", "\r" + " " * 60 + "\r" + bar("Training", 1, 50))
    watch.look()
    watch.look(2.0)
    last = last_of(watch)
    assert (last["Sanity Checking"]["state"], last["Training"]["state"]) == ("closed", "running")


def test_a_bar_of_rich_that_is_missing_in_the_next_frame_is_closed(watch: Watch) -> None:
    line = "━" * 20
    write(watch, "stdout-0", f"Sanity Checking {line} 1/2 0:00:00 • 0:00:00 0.00it/s\n")
    for done in (10, 20, 30):
        up = "\r\x1b[1A\x1b[2K"
        text = f"Epoch 2/4 {line} {done}/100 0:00:02 • 0:00:01 68.29it/s train_loss: 0.5"
        write(watch, "stdout-0", f"{up}{text}\n")
    watch.look()
    last = last_of(watch)
    assert last["Sanity Checking"]["state"] == "closed"
    assert (last["Epoch 2"]["completed"], last["Epoch 2"]["inner"]) == (30, True)
    assert (last["epoch"]["completed"], last["epoch"]["total"]) == (2.3, 5)


def test_an_epoch_that_is_printed_at_its_start_is_not_done(watch: Watch) -> None:
    for epoch in (1, 2):
        write(watch, "stdout-0", f"Epoch {epoch}/2\n")
        watch.look()
        assert last_of(watch)["epoch"]["completed"] == epoch - 1
        write(watch, "stdout-0", "\r100/200 ━━━━━━━━━━━━━━━━━━━━ 1s 9ms/step - loss: 0.5")
        watch.look()
        assert last_of(watch)["epoch"]["completed"] == epoch - 0.5
        write(watch, "stdout-0", "\r200/200 ━━━━━━━━━━━━━━━━━━━━ 1s 9ms/step - loss: 0.4\n")
        watch.look()
        assert last_of(watch)["epoch"]["state"] == "running"
    watch.look(last=True)
    assert (last_of(watch)["epoch"]["completed"], last_of(watch)["epoch"]["state"]) == (
        2,
        "completed",
    )
    assert [step for step, _ in points(watch, "loss")] == [100, 200, 300, 400]


def test_a_rate_of_tokens_is_not_the_rate_of_the_steps(watch: Watch) -> None:
    for done in (20, 30, 40):
        write(watch, "stdout-0", f"step {done}/300 loss 2.3 1048 tokens/s\n")
        watch.look(2.0)
    fact = last_of(watch)["step"]
    assert fact["rate"] == 5.0 and fact["eta_s"] == 52.0


def test_a_loop_in_a_loop_is_told_as_such(watch: Watch) -> None:
    write(watch, "stderr-0", bar("all", 1, 5))
    write(watch, "stderr-0", "\n" + bar("part", 3, 4))
    watch.look()
    assert {name: fact["inner"] for name, fact in last_of(watch).items()} == {
        "all": False,
        "part": True,
    }


def test_rows_of_a_table_count_whether_they_come_with_its_heading_or_later(watch: Watch) -> None:
    """GradientBoostingClassifier(verbose=1) of scikit-learn 1.9, as it was printed."""
    write(watch, "stdout-0", "      Iter       Train Loss   Remaining Time \n")
    write(watch, "stdout-0", "         1           1.2415            1.60s\n")
    watch.look()
    write(watch, "stdout-0", "         2           1.1181            1.35s\n")
    watch.look()
    write(watch, "stdout-0", "        10           0.5771            1.24s\n")
    write(watch, "stdout-0", "        60           0.1018            0.00s\n")
    watch.look()
    write(watch, "stdout-0", "Iteration 1, loss = 0.75720519\n")
    watch.look(last=True)
    assert points(watch, "train_loss") == [(1, 1.2415), (2, 1.1181), (10, 0.5771), (60, 0.1018)]
    assert points(watch, "loss") == [(1, 0.75720519)]
