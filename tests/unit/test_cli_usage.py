"""`hw usage`: the table, the CSV, the JSON and the page, from samples as the sampler writes them
(22, 56).
"""

import csv
import io
import json
import re
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from headway.views.cli.main import main
from headway.views.cli.usage import page
from headway.views.text import csv_text
from headway.views.text.terminal import Output
from headway.views.usage import report, tracks
from tests import needs
from tests.fake_api import FakeApi, Reply, Request, job, serving

HOSTILE = "</script><img src=x onerror=alert(1)>\u202egnp"


@pytest.fixture
def api(home: Path) -> Iterator[FakeApi]:
    with serving(home) as found:
        yield found


def at(second: int) -> str:
    return f"2026-09-21T14:{13 + second // 60:02}:{second % 60:02}.000000Z"


def line(
    rank: int, pid: int | None, cpu: Any, rss: Any, ppid: int | None = None, name: str = "python"
) -> Any:
    return {
        "rank": rank, "pid": pid, "ppid": ppid, "name": None if pid is None else name, "cpu_percent": cpu,
        "rss_bytes": rss, "pss_bytes": None, "threads": 4, "fds": 9, "read_bps": 2048, "write_bps": None,
    }  # fmt: skip


def gpu(index: int, load: Any) -> Any:
    return {
        "index": index, "name": "Tesla T4", "load_percent": load, "memory_bytes": 4_000_000_000,
        "memory_total_bytes": 16_000_000_000, "power_w": 70.0, "temperature_c": 60, "holders": [],
    }  # fmt: skip


def sample(second: int, host: str = "node1", **more: Any) -> Any:
    lines = [
        line(0, None, 50.0 + second, 3000),
        line(0, 7, 40.0 + second, 2000),
        line(0, 8, 10.0, 1000, 7, "worker"),
    ]
    return {
        "time": at(second), "attempt": 1, "task": "worker-0", "host": host, "span_s": 1.0,
        "node": {"cpu_percent": 90.0, "memory_bytes": 8_000, "memory_total_bytes": 16_000, "net_rx_bps": 5},
        "processes": lines, "gpus": [gpu(0, second), gpu(1, 2 * second)], **more,
    }  # fmt: skip


def answer(count: int = 10, **more: Any) -> Any:
    marks = [{"time": at(3), "attempt": 1, "rank": 0, "tags": ["loaded", "data"]}]
    return {
        "level": 0, "samples": [sample(n) for n in range(count)], "checkpoints": marks,
        "last": {"peak_memory_bytes": 3000, "peak_rank": 0}, "next": None, **more,
    }  # fmt: skip


def hw(capfd: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    capfd.readouterr()
    code = main(list(argv))
    return (code, *capfd.readouterr())


# -- the verb


def test_a_page_may_go_to_stdout_and_a_rank_that_is_not_there_is_an_error(
    api: FakeApi, capfd: Any
) -> None:
    found = job()
    api.on("GET", "/api/jobs/[^/]+", found)
    api.on("GET", "/api/jobs/[^/]+/usage", answer())
    code, out, _ = hw(capfd, "usage", found["id"], "--html", "-")
    assert code == 0 and out.startswith("<!doctype html>") and not Path("-").exists()
    code, out, err = hw(capfd, "usage", found["id"], "--rank", "9")
    assert (
        (code, out) == (3, "") and "no samples of rank 9" in err and "it has those of rank 0" in err
    )


def test_the_table_has_nodes_ranks_gpus_and_checkpoints(
    api: FakeApi, capfd: pytest.CaptureFixture[str]
) -> None:
    found = job()
    api.on("GET", "/api/jobs/[^/]+", found)
    api.on("GET", "/api/jobs/[^/]+/usage", answer())
    code, out, _ = hw(capfd, "usage", found["id"])
    assert code == 0
    assert re.search(r"^rank 0 +54 % +59 % +[▁▂▃▄▅▆▇█]+ +2\.9 KiB", out, re.MULTILINE), out
    assert re.search(r"^node1 +90 % +90 %", out, re.MULTILINE), out
    assert re.search(r"^gpu 1 +9 % +18 % .*Tesla T4", out, re.MULTILINE), out
    assert "0:03  loaded · data\n" in out and "peak memory of one rank 2.9 KiB (rank 0)" in out


def test_samples_are_fetched_until_there_are_no_more(
    api: FakeApi, capfd: pytest.CaptureFixture[str]
) -> None:
    def reply(request: Request) -> Any:
        if "after" in request.query:
            assert (request.query["after"], request.query["level"]) == (["77"], ["0"])
            return answer(3)
        return answer(10, next=77)

    found = job()
    api.on("GET", "/api/jobs/[^/]+", found)
    api.on("GET", "/api/jobs/[^/]+/usage", reply)
    code, out, _ = hw(capfd, "--json", "usage", found["id"])
    told = json.loads(out)
    assert (
        code == 0
        and len(told["samples"]) == 13
        and told["id"] == found["id"]
        and "next" not in told
    )


def test_a_job_without_samples_says_so(api: FakeApi, capfd: pytest.CaptureFixture[str]) -> None:
    found = job()
    api.on("GET", "/api/jobs/[^/]+", found)
    api.on("GET", "/api/jobs/[^/]+/usage", answer(0, checkpoints=[], last=None))
    code, out, err = hw(capfd, "usage", found["id"])
    assert (code, out) == (0, "") and "no samples" in err


def test_what_a_program_left_out_is_left_out_and_named(
    api: FakeApi, capfd: pytest.CaptureFixture[str]
) -> None:
    found = job()
    turns = [
        {"time": at(second), "attempt": 1, "rank": 0, "pid": 7, "open": second == 7}
        for second in (2, 7)
    ]
    api.on("GET", "/api/jobs/[^/]+", found)
    api.on("GET", "/api/jobs/[^/]+/usage", answer(windows=turns))
    code, out, _ = hw(capfd, "usage", found["id"])
    # of seconds 0, 1, 7, 8, 9
    assert code == 0 and re.search(r"^rank 0 +55 % +59 %", out, re.MULTILINE), out
    assert re.search(r"^node1 +90 %", out, re.MULTILINE) and "rank 0  0:02 to 0:07" in out, out


def test_a_stretch_that_never_ends_lasts_to_the_end_and_other_ranks_and_attempts_do_not_care() -> (
    None
):
    windows = tracks.Windows([{"time": at(2), "attempt": 1, "rank": 0, "open": False}])
    first_s = windows.closed()[0][2]
    assert windows.closed() == [(1, 0, first_s, None)]
    assert not windows.is_open(1, 0, first_s + 99) and windows.is_open(1, 0, first_s - 1)
    assert windows.is_open(1, 1, first_s + 99) and windows.is_open(2, 0, first_s + 99)


def test_cards_that_others_hold_are_left_out() -> None:
    cards = [gpu(0, 5) | {"own": True}, gpu(1, 99) | {"own": False}]
    found = tracks.tracks([sample(n, gpus=cards) for n in range(3)])
    assert [track.number for track in found if track.kind == tracks.GPU] == [0]


def test_two_forms_at_once_are_refused(api: FakeApi, capfd: pytest.CaptureFixture[str]) -> None:
    assert hw(capfd, "usage", "x-12345", "--csv", "--json")[0] == 2


def test_the_page_is_written_and_a_bad_path_is_told(
    api: FakeApi, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = job()
    api.on("GET", "/api/jobs/[^/]+", found)
    api.on("GET", "/api/jobs/[^/]+/usage", answer())
    assert hw(capfd, "usage", found["id"], "--html", str(tmp_path / "u.html"))[0] == 0
    assert found["id"] in (tmp_path / "u.html").read_text()
    code, _, err = hw(capfd, "usage", found["id"], "--html", str(tmp_path / "no" / "u.html"))
    assert code != 0 and "cannot be written" in err


def test_the_page_of_a_job_tells_its_progress_and_its_last_sample(
    api: FakeApi, capfd: pytest.CaptureFixture[str]
) -> None:
    trackers = [
        {
            "msg": ["epoch", "3"],
            "completed": 40.0,
            "total": 100.0,
            "rate": 2.0,
            "eta_s": 30.0,
            "state": "running",
            "rank": 0,
        },
        {
            "msg": [],
            "completed": 7.0,
            "total": None,
            "rate": None,
            "eta_s": None,
            "state": "failed",
            "rank": None,
        },
    ]
    used = {
        "ranks": 2,
        "cpu_percent": 99.6,
        "memory_bytes": 2048,
        "peak_memory_bytes": 4096,
        "gpu_percent": 50.0,
    }
    found = job(progress=trackers, usage=used, state="running", ended_at=None)
    api.on("GET", "/api/jobs/[^/]+", found)
    api.on("GET", "/api/jobs/[^/]+/events", [])
    api.on("GET", "/api/jobs/[^/]+/logs", {"lines": []})
    code, out, _ = hw(capfd, "q", found["id"])
    assert code == 0
    assert re.search(
        r"progress +epoch 3 40/100 \(rank 0\) · 2/s · 30 s left$", out, re.MULTILINE
    ), out
    assert re.search(r"progress +progress 7 · failed$", out, re.MULTILINE), out
    assert re.search(
        r"usage +cpu 100 % each · memory 2\.0 KiB each · gpu 50 % · peak 4\.0 KiB$",
        out,
        re.MULTILINE,
    ), out


@pytest.mark.parametrize(
    ("curves", "words"),
    [
        ({"curves": {"cpu_percent": {"value": [80, 100]}, "memory_bytes": {"value": [1024, 3072]}}},
         "on average cpu 90 % each · memory 2.0 KiB each · peak 4.0 KiB (rank 1)"),
        (Reply({"error": {"code": "usage", "message": "unknown parameter points", "hint": ""}}, 400),
         "peak 4.0 KiB (rank 1)"),
    ],
    ids=["means", "older server"],
)  # fmt: skip
def test_q_of_an_ended_job_tells_its_means_and_peak_not_the_last_sample(
    api: FakeApi, capfd: Any, curves: Any, words: str
) -> None:
    found = job(
        usage={
            "ranks": 2,
            "cpu_percent": 0.0,
            "memory_bytes": 5,
            "peak_memory_bytes": 4096,
            "peak_rank": 1,
        }
    )
    api.on("GET", "/api/jobs/[^/]+", found)
    api.on("GET", "/api/jobs/[^/]+/usage", curves)
    api.on("GET", "/api/jobs/[^/]+/events", [])
    api.on("GET", "/api/jobs/[^/]+/logs", {"lines": []})
    code, out, _ = hw(capfd, "q", found["id"])
    assert code == 0 and f"  usage       {words}\n" in out


# -- tracks


def test_longer_spans_give_their_mean_and_their_highest() -> None:
    wide = sample(0, processes=[line(0, None, [1, 20, 90], [10, 20, 30])], gpus=[])
    (rank,) = [t for t in tracks.tracks([wide]) if t.kind == tracks.RANK]
    assert (rank.mean("cpu"), rank.high("cpu"), rank.high("memory"), rank.mean("write")) == (
        20.0,
        90.0,
        30.0,
        None,
    )


def test_hosts_are_told_apart_and_one_rank_can_be_chosen() -> None:
    other = sample(1, "node2", processes=[line(1, None, 5.0, 1), line(1, 9, 5.0, 1)], gpus=[])
    found = tracks.tracks([sample(0), other])
    assert [t.label(2) for t in found if t.kind == tracks.RANK] == [
        "node1  rank 0",
        "node2  rank 1",
    ]
    assert {
        t.number for t in tracks.tracks([sample(0), other], rank=1) if t.kind == tracks.PROCESS
    } == {1}


def test_odd_samples_cost_only_themselves() -> None:
    odd = sample(
        0, node=5, processes=[3, {"rank": 0, "pid": None, "cpu_percent": "x"}], gpus="none"
    )
    assert [t.kind for t in tracks.tracks([odd, {"time": "never"}, {}])] == [tracks.RANK]


def test_a_name_cannot_steer_the_terminal() -> None:
    """Sec7, B16."""
    found = tracks.tracks([sample(0, "\x1b[2Jevil"), sample(1, "b")])
    lines = page(job(), found, answer(), Output(1, color="never", ascii_only=False))
    assert "\x1b" not in "\n".join(lines) and "evil" in "\n".join(lines)


# -- CSV


def test_the_csv_has_means_and_maxima() -> None:
    rows = list(
        csv.reader(
            io.StringIO(
                csv_text.to_csv(tracks.csv_rows(tracks.tracks([sample(n) for n in range(5)])))
            )
        )
    )
    assert rows[0] == ["gpu", "metric", "value"]
    found = {(who, metric): value for who, metric, value in rows[1:]}
    assert (found["GPU1", "Load_Percent"], found["GPU1", "MaxLoad_Percent"]) == ("4.00", "8.00")
    assert (found["GPU0", "MemUtil_Percent"], found["GPU0", "MemAllocated_GB"]) == ("25.00", "4.00")
    assert (found["CPU", "MemUtil_Percent"], found["Rank0", "Load_Percent"]) == ("50.00", "52.00")


def test_a_cell_is_never_a_formula() -> None:
    """B19."""
    for text in ("=1+1", "+x", "-x", "@SUM(A1)", "\t=1", "\r=1"):
        assert csv_text.cell(text) == "'" + text
    assert [csv_text.cell(text) for text in ("-1.5", "node-1", "a=b", "")] == [
        "-1.5",
        "node-1",
        "a=b",
        "",
    ]
    hosts = tracks.csv_rows(tracks.tracks([sample(0, "=cmd|' /C calc'!A0"), sample(0, "b")]))
    assert "\n'=cmd" in csv_text.to_csv(hosts) and "\n=cmd" not in csv_text.to_csv(hosts)


# -- timings


def test_timings_are_a_table_csv_or_json(api: FakeApi, capfd: pytest.CaptureFixture[str]) -> None:
    """Capability 32."""
    one = {
        "attempt": 1,
        "pid": 7,
        "count": 40,
        "mean_s": 0.0125,
        "std_s": 0.000002,
        "min_s": 0.01,
        "max_s": 2.0,
    }
    api.on(
        "GET",
        "/api/jobs/[^/]+/timings",
        [one | {"name": "=data", "rank": 0}, one | {"name": "step", "rank": 1}],
    )
    code, out, _ = hw(capfd, "timings", "x-12345")
    assert code == 0 and re.search(
        r"^=data +0 +40 +12\.5 ms +2 µs +10 ms +2 s +500 ms", out, re.MULTILINE
    ), out
    assert out.startswith("attempt 1 · pid 7\n")
    code, out, _ = hw(capfd, "timings", "x-12345", "--csv", "--rank", "0")
    assert out.splitlines() == [
        "name,attempt,rank,pid,count,mean_s,std_s,min_s,max_s", "'=data,1,0,7,40,0.0125,2e-06,0.01,2.0",
    ]  # fmt: skip
    code, out, _ = hw(capfd, "timings", "x-12345", "--json", "--rank", "1")
    assert [found["name"] for found in json.loads(out)] == ["step"]
    assert hw(capfd, "timings", "x-12345", "--json", "--csv")[0] == 2


def test_a_job_without_timings_says_how_they_are_made(
    api: FakeApi, capfd: pytest.CaptureFixture[str]
) -> None:
    api.on("GET", "/api/jobs/[^/]+/timings", [])
    code, out, err = hw(capfd, "timings", "x-12345")
    assert (code, out) == (0, "") and "hw.timed" in err


# -- the page


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def hostile_page() -> str:
    samples = [
        sample(n, HOSTILE, processes=[line(0, None, 1.0, 1), line(0, 7, 1.0, 1, name=HOSTILE)])
        for n in range(3)
    ]
    marks = [{"time": at(1), "rank": None, "tags": [HOSTILE]}]
    return report.render(job(id=HOSTILE, command=[HOSTILE]), tracks.tracks(samples), marks)


def test_no_name_of_a_job_becomes_an_element_and_nothing_is_loaded() -> None:
    text = hostile_page()
    elements = Elements()
    elements.feed(text)
    assert [tag for tag, _ in elements.tags] == [
        "html", "head", "meta", "meta", "meta", "title", "style", "body", "noscript", "main", "script", "script",
    ]  # fmt: skip
    assert not [attrs for _, attrs in elements.tags if {"src", "href", "onerror"} & set(attrs)]
    assert "alert(1)" in text and "<img" not in text and "\u202e" not in text
    policy = next(str(attrs["content"]) for tag, attrs in elements.tags if "http-equiv" in attrs)
    assert (
        policy.startswith("default-src 'none'")
        and "unsafe" not in policy
        and policy.count("sha256-") == 2
    )


def test_the_script_only_writes_text() -> None:
    script = report._asset("report.js")
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "fetch(",
        "http:",
        "import",
    ):
        assert word not in script.replace('"http://www.w3.org/2000/svg"', "")


def test_the_page_stacks_processes_and_joins_the_small_ones() -> None:
    lines = [line(0, 100 + n, float(n), n) for n in range(40)]
    found = tracks.tracks([sample(n, processes=lines) for n in range(5)])
    charts = {chart["key"]: chart for chart in report.contents(job(), found, [])["charts"]}
    series = charts["cpu"]["series"]
    assert len(series) == report.STACKED_MAX + 1 and series[0]["label"] == "python 139 (rank 0)"
    assert series[-1]["label"] == "10 more" and series[-1]["values"][0] == sum(range(10))
    assert {len(one["values"]) for one in series} == {report.PLACES}
    assert {"cpu", "memory", "load", "gpu_memory", "read", "threads"} <= set(
        charts
    ) and "write" not in charts


def test_the_same_checkpoint_of_several_ranks_is_one_with_its_first_moment() -> None:
    marks = [
        {"time": at(n), "rank": rank, "tags": ["epoch", epoch]}
        for n, (epoch, rank) in enumerate(
            [(0, 1), (0, 0), (1, 0), (0, 2), (1, 1), (0, 0), (1, None)]
        )
    ]
    found = [(one["time"], one["tags"][1], one["ranks"]) for one in tracks.folded(marks)]
    assert found == [
        (at(0), "0", [1, 0, 2]),
        (at(2), "1", [0, 1]),
        (at(5), "0", [0]),
        (at(6), "1", []),
    ]
    words = [tracks.ranks_words(ranks, 3) for ranks in ([0, 1, 2], [0, 1], [2], [])]
    assert words == ["", "2 of 3 ranks", "rank 2", ""]


def test_a_process_of_one_look_stands_for_the_time_since_the_look_before_and_the_axis_begins_with_the_job() -> (
    None
):
    looks = [
        sample(n, processes=[line(0, 7, 10.0, 1)] + [line(0, 8, 30.0, 1)] * (n == 5), gpus=[])
        for n in (2, 5, 8)
    ]
    found = report.contents(
        job(started_at=at(0)), tracks.tracks(looks), [{"time": at(1), "rank": 0, "tags": ["go"]}]
    )
    assert found["length"] == 8.0 and found["checkpoints"][0]["at"] == 1.0
    series = {one["label"]: one["values"] for one in found["charts"][0]["series"]}
    short = [
        i / report.PLACES * 8
        for i, value in enumerate(series["python 8 (rank 0)"])
        if value == 30.0
    ]
    assert 1.9 < short[0] < 2.1 and 4.9 < short[-1] < 5.1 and len(short) == 180
    assert set(series["python 7 (rank 0)"]) == {10.0}


def test_a_long_silence_is_not_filled_with_the_look_after_it() -> None:
    found = report.contents(job(), tracks.tracks([sample(n) for n in (0, 1, 2, 3, 59)]), [])
    values = found["charts"][0]["series"][0]["values"]
    assert values[100:400] == [0.0] * 300 and values[-1] > 0


def test_with_many_processes_the_ranks_are_stacked_and_have_the_colours() -> None:
    lines = [line(rank, None, 20.0, 1) for rank in range(4)] + [
        line(n % 4, 100 + n, 1.0, 1) for n in range(40)
    ]
    found = report.contents(
        job(), tracks.tracks([sample(n, processes=lines, gpus=[]) for n in range(5)]), []
    )
    assert sorted(one["label"] for one in found["charts"][0]["series"]) == [
        f"rank {n}" for n in range(4)
    ]
    coloured = {row["label"]: row["colour"] for row in found["tree"] if row["colour"] is not None}
    assert coloured == {one["label"]: one["colour"] for one in found["charts"][0]["series"]}


def test_the_process_tree_hangs_children_below_their_parents() -> None:
    lines = [
        line(0, None, 1.0, 1),
        line(0, 7, 1.0, 1, 1),
        line(0, 9, 1.0, 1, 8),
        line(0, 8, 1.0, 1, 7, "worker"),
    ]
    rows, _ = report.tree(tracks.tracks([sample(0, processes=lines)]))
    assert [(row["depth"], row["label"]) for row in rows] == [
        (0, "node1"), (1, "rank 0"), (2, "python 7"), (3, "worker 8"), (4, "python 9"), (1, "gpu 0"), (1, "gpu 1"),
    ]  # fmt: skip


def test_processes_that_name_each_other_as_parents_do_not_hang_the_page() -> None:
    lines = [line(0, 7, 1.0, 1, 8), line(0, 8, 1.0, 1, 7), line(0, 9, 1.0, 1, 9)]
    rows, _ = report.tree(tracks.tracks([sample(0, processes=lines, gpus=[])]))
    assert "python 9" in [row["label"] for row in rows]


# Enough of a browser's document to run the script: it keeps what was made, and fails on markup.
_DOCUMENT = r"""
const fs = require("fs");
const page = fs.readFileSync(process.argv[2], "utf8");
const data = page.match(/id="data">([^<]*)</)[1];
const script = page.match(/<script>([\s\S]*?)<\/script>/)[1];
class Element {
  constructor(tag) {
    Object.assign(this, { tag, children: [], attributes: {}, dataset: {}, style: {}, words: "" });
  }
  set textContent(text) { this.words = String(text); this.children = []; }
  get textContent() { return this.words + this.children.map((c) => c.textContent).join(" "); }
  setAttribute(name, value) {
    this.attributes[name] = String(value);
    if (name === "data-key") this.dataset.key = String(value);
  }
  appendChild(child) { this.children.push(child); return child; }
  replaceChildren() { this.children = []; }
  addEventListener(name, work) { (this.listeners ||= {})[name] = work; }
  getBoundingClientRect() { return { left: 0, width: 1160 }; }
  all(tag) { return this.children.flatMap((c) => [...(c.tag === tag ? [c] : []), ...(c.all ? c.all(tag) : [])]); }
}
const report = new Element("main"), holder = new Element("script");
holder.textContent = data;
global.document = {
  getElementById: (id) => (id === "data" ? holder : report),
  createElement: (tag) => new Element(tag), createElementNS: (_, tag) => new Element(tag),
  createTextNode: (text) => { const made = new Element("#text"); made.textContent = text; return made; },
};
eval(script);
const before = report.all("path").length;
report.all("button")[1].listeners.click();
report.all("svg")[0].listeners.mousemove({ clientX: 600 });
const said = report.textContent;
report.all("tr").filter((row) => row.listeners)[0].listeners.click();
const numbers = report.all("path").map((p) => p.attributes.d).join("");
console.log(JSON.stringify({
  tags: [...new Set(report.children.flatMap((c) => [c.tag, ...c.all("img").map((i) => i.tag)]))], before,
  buttons: report.all("button").map((b) => b.textContent), rows: report.all("tr").length,
  marks: report.all("line").filter((l) => l.attributes.class === "mark").length,
  off: report.all("path").filter((p) => p.attributes.class === "off").length,
  said, odd: /NaN|undefined|Infinity/.test(numbers),
}));
"""


@pytest.mark.parametrize("what", ["plain", "hostile"])
def test_the_script_draws_the_page(tmp_path: Path, what: str) -> None:
    node = needs.tool("node", "nodejs")
    plain = report.render(
        job(), tracks.tracks([sample(n) for n in range(10)]), answer()["checkpoints"]
    )
    (tmp_path / "page.html").write_text(plain if what == "plain" else hostile_page())
    (tmp_path / "run.js").write_text(_DOCUMENT)
    done = subprocess.run(
        [node, tmp_path / "run.js", tmp_path / "page.html"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (
        found["buttons"][:2] == ["CPU", "memory"] and found["marks"] == 1 and found["odd"] is False
    )
    assert "img" not in found["tags"] and "in all" in found["said"]
    if what == "plain":
        assert found["before"] == 2 and found["off"] == 1 and "loaded · data" in found["said"]
