"""Issue 3 for real: two terminals on one live job, and a server that is unplugged under every view
of it.

The server is frozen for HEADWAY_OUTAGE_S seconds (a full minute by hand: `HEADWAY_OUTAGE_S=60`),
then killed; whoever looks for it next starts it again. Afterwards no view may have a hole.
"""

import copy
import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headway.views.api.source import Source, job_route
from headway.views.console.feed import JobFeed
from headway.views.console.job_model import Metric, Model
from headway.views.console.job_view import JobView
from headway.views.console.log_buffer import Log
from headway.views.console.widgets.curve import Curve
from tests.desk import Desk
from tests.driver import PYTHON, Hw
from tests.waiting import wait_until

OUTAGE_S = float(os.environ.get("HEADWAY_OUTAGE_S", "4"))
SCRIPT = """
import os, sys, time
import headway as hw

rank, number, kept = os.environ["RANK"], 0, []
with hw.Progress.new(total=None, msg="beats") as progress:
    while not os.path.exists("enough"):
        print("beat", rank, number)
        hw.log({"number": number}, step=number)
        progress.advance()
        kept.append(b"x" * (1 << 18))  # memory that grows: a hole in its curve is seen
        number += 1
        time.sleep(0.05)
print("sum", rank, number)
"""


@pytest.fixture
def desks() -> Iterator[list[Desk]]:
    found: list[Desk] = []
    yield found
    for desk in found:
        desk.close()


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    return Hw(home, tmp_path)


def beats(text: str, rank: int) -> list[int]:
    return [int(number) for number in re.findall(rf"beat {rank} (\d+)", text)]


def sizes(hw: Hw, job: str) -> list[int]:
    """How often each rank has beaten, as it said at its end."""
    said = hw("logs", job, "--grep", "^sum ").stdout.decode()
    return [int(number) for _, number in sorted(re.findall(r"sum (\d) (\d+)", said))]


@pytest.mark.timeout(300 + 2 * int(OUTAGE_S))
@pytest.mark.cap(18, 20, 21)
def test_a_server_unplugged_and_killed_leaves_no_hole_in_any_view(
    hw: Hw, desks: list[Desk]
) -> None:
    job = hw.submit("-n", "2", "--monitoring-interval-s", "0.5", PYTHON, hw.script(SCRIPT))
    follower = hw.start("logs", "-f", job)
    desks.append(Desk("watch", job))
    view, still = watching(job)
    desks[0].sees("beat 1 ")
    wait_until(
        lambda: hw("usage", job, "--json").returncode == 0 and samples(hw, job),
        what="a sample of usage",
    )

    frozen = hw.server_pid()
    os.kill(frozen, signal.SIGSTOP)
    away_s = time.time()
    desks[0].sees("server")  # the first line says that it is away
    wait_until(lambda: time.time() - away_s > OUTAGE_S, OUTAGE_S + 10, "the outage")
    back_s = time.time()
    os.kill(frozen, signal.SIGKILL)
    newest = beats(desks[0].shown(), 0)[-1]
    wait_until(
        lambda: max(beats(desks[0].shown(), 0)) > newest + OUTAGE_S, 60, "news after the outage"
    )
    wait_until(lambda: has_whole_curves(view.model, still), 60, "curves without a hole")
    (hw.cwd / "enough").touch()

    out, err = follower.communicate(timeout=90)
    assert follower.returncode == 0, err.decode()
    assert desks[0].ends() == 0
    whole = sizes(hw, job)
    text = out.decode()
    for rank in (0, 1):
        assert beats(text, rank) == list(range(whole[rank]))
        assert hw.points(job, "number", rank) == [float(n) for n in range(whole[rank])]
    assert counted(desks[0].shown()) == sum(whole) + 2
    told = {one["rank"]: one for one in hw.json("q", job)["progress"]}
    assert [told[rank]["completed"] for rank in (0, 1)] == whole
    during = [one for one in samples(hw, job) if away_s < one < back_s]
    assert len(during) >= OUTAGE_S / 2  # of about two a second
    wait_until(lambda: view.done, 60, "the end in the view")
    held = [(said.rank, said.text) for said in view.model.log.kept if said.rank >= 0]
    stored = hw.json("logs", job)["lines"]
    for rank in (0, 1):
        texts = [line["text"] for line in stored if line["rank"] == rank]
        assert [text for whose, text in held if whose == rank] == texts and len(texts) == whole[
            rank
        ] + 1


def watching(job: str) -> tuple[JobView, threading.Lock]:
    """What `hw watch` holds of a job, without a terminal, to its end. It takes no news while the
    lock is held.
    """
    with closing(Source.connect()) as source:
        found = source.get(job_route(job))
        feed = JobFeed(source, job, lambda: came.set(), 1000)
    came, still = threading.Event(), threading.Lock()
    view = JobView(Model(found, Log(), 2, str(found["state"])), feed, lambda _: None)

    def work() -> None:
        while view.done is None:
            came.wait(1.0)
            came.clear()
            with still:
                view.take_news()

    feed.start()
    threading.Thread(target=work, daemon=True).start()
    return view, still


def has_whole_curves(model: Model, still: threading.Lock) -> bool:
    """Whether the memory and the number that the view draws are those that are stored, for all of
    the job's life.
    """
    with still:  # as they are at one moment: news change them in place
        drawn = (
            model.usage_curves.get("memory_bytes", Curve()),
            model.metrics.get("number", Metric()).curve,
        )
        used, number = copy.deepcopy(drawn)
    with closing(Source.connect()) as source:  # what hw usage and hw metrics ask for
        found = source.get(job_route(model.job_id, "usage"))["samples"]
        told = source.get(job_route(model.job_id, "metrics"), [("name", "number"), ("rank", 0)])
    memory = [
        (one["time"], line["rss_bytes"])
        for one in found
        for line in one["processes"]
        if line["pid"] is None
    ]
    series = told[model.job_id]["number"][0]
    logged = list(zip(series["time"], series["value"], strict=True))
    return is_alike(used, memory) and is_alike(number, logged)


def is_alike(curve: Curve, told: list[tuple[str, float]]) -> bool:
    """A value may stand two places beside where all of them would put it; a hole is as wide as the
    outage.
    """
    whole = Curve()
    for at, value in told:
        moment = datetime.fromisoformat(at).timestamp()
        if moment <= curve.last_s:
            whole.add(moment, value)
    held, wanted = curve.values(), whole.values()
    near = [wanted[max(place - 2, 0) : place + 3] or wanted[-1:] for place in range(len(held))]
    fits = all(
        min(some) * 0.95 <= one <= max(some) * 1.05
        for one, some in zip(held, near, strict=True)
        if some
    )
    return fits and bool(wanted) and abs(len(held) - len(wanted)) <= 2


def samples(hw: Hw, job: str) -> list[float]:
    """When usage was sampled, in seconds."""
    found: Any = json.loads(hw("usage", job, "--json").stdout)
    times = {one["time"] for one in found["samples"]}
    return sorted(datetime.fromisoformat(one).astimezone(UTC).timestamp() for one in times)


def counted(shown: str) -> int:
    """Lines that the view had seen by its end: those that it left on the terminal, and those it
    says came before.
    """
    before = re.search(r"… ([\d,]+) lines before", shown)
    assert before is not None, shown
    return int(before[1].replace(",", "")) + len(re.findall(r"│ (?:beat|sum) ", shown))


@pytest.mark.cap(18)
def test_two_terminals_show_the_same_live_job(hw: Hw, desks: list[Desk]) -> None:
    job = hw.submit("-n", "2", PYTHON, hw.script(SCRIPT))
    desks += [Desk("watch", job), Desk("watch", job, columns=120, rows=40, NO_COLOR="1")]
    for desk in desks:
        for words in (job, "running", "beats", "number", "beat 0 ", "beat 1 "):
            desk.sees(words)
    # one of them is ahead by a frame at most: what one shows, the other comes to show
    for desk in desks:
        newest = beats(desks[0].shown(), 1)[-1]
        wait_until(
            lambda desk=desk, newest=newest: newest in beats(desk.raw.decode(errors="replace"), 1),
            30,
            "it",
        )  # type: ignore[misc]
    # NO_COLOR
    assert re.search(rb"\x1b\[[\d;]*m", desks[0].raw) and not re.search(
        rb"\x1b\[3\dm", desks[1].raw
    )
    desks[0].press(b"q")
    assert desks[0].ends() == 0
    (hw.cwd / "enough").touch()
    desks[1].sees("succeeded")
    assert desks[1].ends() == 0
    assert "sum 1" in desks[1].shown()
