"""The verbs against a scripted server: what they send, what they print, how they exit."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.model.ids import new_uuid
from headway.views.cli.assets import placed
from headway.views.cli.main import main
from tests.fake_api import CUT, FakeApi, Reply, Request, error, job, process, serving


@pytest.fixture
def api(home: Path) -> Iterator[FakeApi]:
    with serving(home) as found:
        yield found


class Hw:
    """`hw` in this process; stdout and stderr of each call."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self.capfd = capfd
        self.out = self.err = ""

    def __call__(self, *argv: str) -> int:
        self.capfd.readouterr()
        code = main(list(argv))
        self.out, self.err = self.capfd.readouterr()
        return code

    def json(self, *argv: str) -> Any:
        assert self("--json", *argv) == 0, self.err
        return json.loads(self.out)


@pytest.fixture
def hw(capfd: pytest.CaptureFixture[str]) -> Hw:
    return Hw(capfd)


# -- errors and exit codes


def test_an_ambiguous_id_lists_the_candidates_and_exits_3(api: FakeApi, hw: Hw) -> None:
    """Capability 4; the words are the server's."""
    words = '2 jobs end in "7": digits-a0317 (running), voc20-11207 (succeeded)'
    api.on(
        "GET",
        "/api/jobs/7",
        error(409, "not_found", words, "type one more character", ("digits-a0317",)),
    )
    assert hw("q", "7") == 3
    assert hw.err == f"hw: {words}\n    type one more character\n"
    assert hw.out == ""


def test_what_cannot_be_an_id_never_becomes_a_path(api: FakeApi, hw: Hw) -> None:
    """B20."""
    for ref in ("", "../server", "a/b", "a%2fb", "a?x=1", "a..b", "\x1b[2J", "x" * 500):
        assert hw("q", ref) == 3
        assert "\x1b" not in hw.err
    assert api.requests == []


def test_of_several_ids_those_that_exist_are_answered(api: FakeApi, hw: Hw) -> None:
    api.on("GET", "/api/jobs/a1", job("x-a1"))
    assert hw("q", "a1", "zz", "--json") == 3
    assert [found["id"] for found in json.loads(hw.out)] == ["x-a1"]


def test_one_id_gives_an_object_and_several_give_a_list(api: FakeApi, hw: Hw) -> None:
    api.on("GET", "/api/jobs/a1", job("x-a1"))
    assert hw.json("q", "a1")["id"] == "x-a1"
    assert [found["id"] for found in hw.json("q", "a1", "a1")] == ["x-a1", "x-a1"]


def test_a_server_in_trouble_is_told_with_exit_4(api: FakeApi, hw: Hw) -> None:
    api.on("GET", "/api/jobs", error(503, "unreachable", "the disk is full"))
    assert hw("ls") == 4
    api.on("GET", "/api/jobs", Reply(b"<html>", 502))
    assert hw("ls") == 4


def test_an_answer_that_is_not_json_is_told_as_that(api: FakeApi, hw: Hw) -> None:
    api.on("GET", "/api/jobs", Reply(b"<html>"))
    assert hw("ls") == 1
    assert "not JSON" in hw.err


def test_own_failures_of_run_and_wait_exit_125(api: FakeApi, hw: Hw) -> None:
    api.on("POST", "/api/jobs", error(409, "refused", "needs 9 GPUs, this machine has 0"))
    assert hw("run", "true") == 125
    assert hw("submit", "--wait", "true") == 125
    assert hw("submit", "true") == 1
    assert (
        hw("run")
        == hw("-n", "0", "run", "x")
        == hw("run", "--nope", "x")
        == hw("--nope", "run", "x")
        == 125
    )
    assert hw("submit") == hw("submit", "--nope", "x") == 2


def test_no_server_is_exit_4_and_says_what_to_type(home: Path, hw: Hw) -> None:
    assert hw("server", "status") == 4
    assert hw.err == f"hw: no server is running for {home}\n    to start one: hw server start\n"
    assert hw("server", "status", "--json") == 4
    assert json.loads(hw.out) == {"pid": None, "address": None, "version": None, "home": str(home)}


@pytest.mark.parametrize(
    "argv",
    [
        ["--help"],
        [],
        ["help"],
        ["help", "ls"],
        ["run", "--help"],
        ["-h", "ls"],
        ["--version"],
        ["ls", "--version"],
    ],
)
def test_help_and_version_need_no_server(hw: Hw, argv: list[str]) -> None:
    assert hw(*argv) == 0
    assert hw.out.strip() and hw.err == ""


# -- submit


def test_submit_sends_the_command_and_its_surroundings(
    api: FakeApi, hw: Hw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.on("POST", "/api/jobs", Reply(job(state="waiting"), 201))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLOUR", "blue")
    words = ["python", "train.py", "-n", "9", "--", "--json", "a b", "$(x)"]
    options = "-n 4 -e voc --tag t1 --tag t2 --env COLOUR=red --env A=b=c --max-duration 3.5h --memory 1GiB --cpus 2"
    assert hw(*options.split(), "submit", "--priority", "-3", *words) == 0
    body = api.sent("POST", "/api/jobs")[0].body
    spec = body["spec"]
    assert spec["command"] == words
    assert (spec["cwd"], spec["name"], spec["experiment"], spec["cluster"]) == (
        str(tmp_path),
        "train",
        "voc",
        "here",
    )
    assert (spec["processes"], spec["cpus"], spec["memory_bytes"], spec["priority"]) == (
        4,
        2,
        2**30,
        -3,
    )
    assert (spec["max_duration_s"], spec["tags"], spec["env_set"]) == (
        12_600.0,
        ["t1", "t2"],
        ["COLOUR", "A"],
    )
    assert (body["env"]["COLOUR"], body["env"]["A"]) == ("red", "b=c")
    assert body["env"]["PATH"] == os.environ["PATH"]
    assert "NOFILE" in spec["rlimits"] and len(spec["rlimits"]["NOFILE"]) == 2
    umask = os.umask(0o022)
    os.umask(umask)
    assert spec["umask"] == umask
    assert len(body["uuid"]) == len(new_uuid())


def test_submit_prints_the_id_alone_on_stdout_and_the_way_back_on_stderr(
    api: FakeApi, hw: Hw
) -> None:
    """Capability 14."""
    api.on("POST", "/api/jobs", Reply(job(state="waiting"), 201))
    assert hw("submit", "true") == 0
    assert hw.out == "digits-7f3c2\n"
    for way in ("hw logs -f 7f3c2", "hw abort 7f3c2", "hw resubmit 7f3c2"):
        assert way in hw.err
    assert hw.json("submit", "--name", "x", "true")["id"] == "digits-7f3c2"


def test_a_lost_reply_is_asked_for_again_with_the_same_uuid(api: FakeApi, hw: Hw) -> None:
    """P9."""

    def answer(request: Request) -> Any:
        return CUT if len(api.sent("POST", "/api/jobs")) == 1 else Reply(job(state="waiting"), 201)

    api.on("POST", "/api/jobs", answer)
    assert hw("submit", "true") == 0
    first, second = api.sent("POST", "/api/jobs")
    assert first.body == second.body


def test_a_word_is_a_job_file_only_when_it_stands_alone_and_exists(
    api: FakeApi, hw: Hw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.on("POST", "/api/jobs", Reply(job(), 201))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text("name: x")
    assert hw("submit", "job.yaml") == 2
    assert "job.yaml, line 1: a job needs a command" in hw.err
    assert hw("submit", "other.yaml") == 0
    assert hw("submit", "--wait", "job.yaml") == 125
    (tmp_path / "job.yaml").chmod(0o755)
    assert hw("submit", "./job.yaml", "x") == 0
    assert api.sent("POST", "/api/jobs")[-1].body["spec"]["command"] == ["./job.yaml", "x"]


def test_too_much_environment_is_refused_and_the_largest_variable_named(
    api: FakeApi, hw: Hw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B24."""
    monkeypatch.setenv("BIG", "x" * 5_000_000)
    assert hw("submit", "true") == 2
    assert "the largest variable is BIG" in hw.err
    monkeypatch.delenv("BIG")
    assert hw("submit", "echo", "x" * 2_000_000) == 2
    assert "put the long arguments into a file" in hw.err


def test_a_folder_that_is_gone_is_told(
    api: FakeApi, hw: Hw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert hw("submit", "true") == 2
    assert "cd to a folder that exists" in hw.err
    monkeypatch.chdir(tmp_path)


# -- query

FAILED = job(
    "digits-7f3c2",
    process(0, exit_code=None, signal=15, reason="rank 2 failed"),
    process(1, exit_code=None, signal=15, reason="rank 2 failed"),
    process(
        2,
        exit_code=1,
        exception={
            "exc_type": "ModuleNotFoundError", "message": "No module named 'torchvision'", "file": "train.py",
            "line": 14, "source": "import torchvision",
            "traceback": "Traceback:\n  File train.py\x1b[2J\nModuleNotFoundError: …",
            "where": "main",
        },
    ),
    state="failed", exit_code=1, metrics={"loss": 0.5, "nan": "NaN"}, tags=["base"], experiment="exp",
    config={"lr": 0.1, "deep": {"a": [1, 2]}}, parent="digits-00000",
    cause={"cause": "import_error", "class": "user", "text": "ModuleNotFoundError: …", "rank": 2},
)  # fmt: skip


def test_the_page_of_a_failed_job_names_the_first_rank_its_exception_and_every_log(
    api: FakeApi, hw: Hw
) -> None:
    """Capabilities 15, 27, 40."""
    api.on("GET", "/api/jobs/7f3c2", FAILED)
    gap = {"stream": "stdout-0", "bytes": 12_345, "reason": "disk full"}
    note = {"level": "warning", "text": "metric x is a str"}
    api.on("GET", "/api/jobs/.*/events", [
        {"time": None, "type": "gap", "attempt": 1, "rank": 0, "data": gap},
        {"time": None, "type": "note", "attempt": 1, "rank": 1, "data": note},
    ])  # fmt: skip
    lines = [
        {
            "time": "2026-11-15T12:00:02Z",
            "rank": 0,
            "stream": "stdout",
            "text": "hello \x1b]0;x\x07",
        }
    ]
    api.on("GET", "/api/jobs/.*/logs", {"lines": lines, "more": False})
    assert hw("q", "7f3c2") == 0
    for said in (
        "✗ digits-7f3c2  failed", "here · 3 processes", "python train.py", "/tmp/p", "digits-00000", "base",
        "ModuleNotFoundError: No module named 'torchvision'", "exit code 1", "user error · import_error",
        "rank 2, worker-0", "train.py:14", "14 │ import torchvision", "ranks 0, 1 were stopped because of it",
        "File train.py␛[2J", "loss 0.5", "nan nan", "lr 0.1", "deep {a: [1, 2]}", "12 s", "hello ␛]0;x␇",
        "/h/logs/u/1/worker-0/stderr-2", "killed by signal 15 (SIGTERM), because: rank 2 failed",
        "rank 0: lost 12,345 bytes of stdout-0: disk full", "rank 1: metric x is a str",
    ):  # fmt: skip
        assert said in hw.out, said
    assert "\x1b" not in hw.out
    assert api.sent("GET", "/api/jobs/.*/logs")[0].query == {"rank": ["0"], "tail": ["500"]}


def test_an_unknown_state_always_has_its_age(api: FakeApi, hw: Hw) -> None:
    """P8."""
    api.on("GET", "/api/jobs/a1", job("x-a1", state="unknown", ended_at=None, exit_code=None))
    api.on("GET", "/api/jobs/.*/events", [])
    api.on("GET", "/api/jobs/.*/logs", {"lines": [], "more": False})
    assert hw("q", "a1") == 0
    assert "unknown since " in hw.out and ", last heard " in hw.out
    api.on("GET", "/api/jobs", [job("x-a1", state="unknown", ended_at=None)])
    assert hw("ls") == 0
    assert "last heard" in hw.out


def test_a_job_that_waits_says_that_there_is_no_log_yet(api: FakeApi, hw: Hw) -> None:
    """Capability 16."""
    waiting = job(
        "x-a1", state="waiting", started_at=None, ended_at=None, elapsed_s=None, exit_code=None
    ) | {"attempts": []}
    api.on("GET", "/api/jobs/a1", waiting)
    api.on("GET", "/api/jobs/.*/events", [])
    assert hw("q", "a1") == 0
    assert (
        "waiting for" in hw.out
        and "in the queue (hw why a1)" in hw.out
        and "has not started" in hw.out
    )


def test_ranks_of_which_the_same_is_to_be_said_share_a_line_of_progress(
    api: FakeApi, hw: Hw
) -> None:
    done = {
        "msg": ["epoch"],
        "completed": 10,
        "total": 10,
        "state": "completed",
        "rate": None,
        "eta_s": None,
    }
    slow = {**done, "completed": 7, "state": "running", "rate": 2.0, "eta_s": 90.0}
    page = job("x-a1", state="succeeded", engine="slurm", engine_id="812")
    # the last that Slurm said before the agent told the end
    page["attempts"][-1]["engine_word"] = "RUNNING"
    page["progress"] = [*({**done, "rank": rank} for rank in range(8)), {**slow, "rank": 8}]
    api.on("GET", "/api/jobs/a1", page)
    api.on("GET", "/api/jobs/.*/events", [])
    api.on("GET", "/api/jobs/.*/logs", {"lines": [], "more": False})
    assert hw("q", "a1") == 0
    assert (
        "epoch 10/10 (8 ranks) · completed" in hw.out
        and "epoch 7/10 (rank 8) · 2/s · 1 min 30 s left" in hw.out
    )
    assert "slurm · 812" in hw.out and "RUNNING" not in hw.out


def test_a_script_that_was_started_without_hw_says_where_its_output_is(
    api: FakeApi, hw: Hw
) -> None:
    api.on("GET", "/api/jobs/a1", job("x-a1", process(logs={"stdout": None, "stderr": None})))
    api.on("GET", "/api/jobs/.*/events", [])
    api.on("GET", "/api/jobs/.*/logs", {"lines": [], "more": False})
    assert hw("q", "a1") == 0 and "started without hw" in hw.out
    assert hw("logs", "a1") == 0 and "started without hw" in hw.err


def test_assets_fetches_only_new_bytes(
    api: FakeApi, hw: Hw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Capability 15."""
    monkeypatch.chdir(tmp_path)
    stored = bytearray(b"first\n")

    def streams(_: Request) -> Any:
        return [
            {"task": "worker-0", "attempt": 1, "name": "stdout-0", "kind": "raw", "rank": 0, "position": len(stored)},
            {"task": "worker-0", "attempt": 1, "name": "shim", "kind": "records", "rank": None, "position": 9},
        ]  # fmt: skip

    api.on("GET", "/api/jobs/[^/]*", job("x-a1"))
    api.on("GET", "/api/jobs/.*/streams", streams)
    api.on("GET", "/api/jobs/.*/logs", lambda r: bytes(stored[int(r.query["offset"][0]) :]))
    assert hw("q", "a1", "--assets", "--json") == 0
    stored += b"\xffsecond"
    assert hw("q", "a1", "--assets", "--json") == 0
    path = tmp_path / "assets" / "x-a1" / "1" / "worker-0" / "stdout-0"
    assert path.read_bytes() == b"first\n\xffsecond"
    assert [r.query["offset"] for r in api.sent("GET", "/api/jobs/.*/logs")] == [["0"], ["6"]]


def test_assets_keep_the_offsets_of_a_stream_that_has_a_gap() -> None:
    """P5."""
    mark = b"\n[headway: 1,000 bytes missing: disk full]\n"
    assert list(placed(b"head" + mark + b"tail", 10, 1018)) == [
        (10, b"head"),
        (14, mark),
        (1014, b"tail"),
    ]
    short = b"\n[headway: 5 bytes missing: damaged]\n"
    assert list(placed(b"a" + short + b"bc", 0, 8)) == [(0, b"a"), (1, short[:5]), (6, b"bc")]
    assert list(placed(b"\n[headway: 5 bytes missing: x]\n", 0, 31)) == [
        (0, b"\n[headway: 5 bytes missing: x]\n")
    ]


def test_assets_writes_nowhere_but_below_its_folder(
    api: FakeApi, hw: Hw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B10, B20, B21: names come from a server."""
    monkeypatch.chdir(tmp_path)
    stream = {
        "task": "../../x",
        "attempt": 1,
        "name": "stdout-0",
        "kind": "raw",
        "rank": 0,
        "position": 3,
    }
    api.on("GET", "/api/jobs/[^/]*", job("x-a1"))
    api.on("GET", "/api/jobs/.*/streams", [stream])
    api.on("GET", "/api/jobs/.*/logs", b"abc")
    assert hw("q", "a1", "--assets", "--json") == 1
    folder = tmp_path / "assets" / "x-a1" / "1" / "worker-0"
    folder.mkdir(parents=True)
    (folder / "stdout-0").symlink_to(tmp_path / "victim")
    stream["task"] = "worker-0"
    assert hw("q", "a1", "--assets", "--json") == 1
    assert not (tmp_path / "victim").exists()


# -- ls


def test_ls_says_what_is_equal_once_and_shows_what_differs(api: FakeApi, hw: Hw) -> None:
    """Capability 9."""
    rows = [
        job(
            "voc-e2fc7", state="running", experiment="voc20", metrics={"loss": 0.312}, ended_at=None
        ),
        job("voc-ab12f", state="failed", experiment="voc20", metrics={"loss": "NaN"}),
    ]
    rows[1]["cause"] = {"cause": "x", "class": "user", "text": "non-finite loss\x1b[0m", "rank": 0}
    api.on("GET", "/api/jobs", rows)
    assert hw("ls") == 0
    above, head, first, second = hw.out.splitlines()
    assert above == "experiment voc20 · cluster here"
    assert head.split() == ["id", "state", "elapsed", "submitted", "loss", "note"]
    assert first.split()[:3] == ["voc-e2fc7", "running", "0:12"] and "0.312" in first
    assert second.endswith("non-finite loss") and " nan " in second


def test_a_long_list_as_json_is_passed_on_a_line_for_each_job(api: FakeApi, hw: Hw) -> None:
    body = (
        b"[" + b",\n".join(b'{"id":"x-%05d","name":"a"}' % number for number in range(300)) + b"]"
    )
    api.on("GET", "/api/jobs", Reply(body))
    assert hw("--json", "ls") == 0
    assert hw.out.encode() == body + b"\n"
    api.on("GET", "/api/jobs", Reply(body.replace(b'"a"', '"ä"'.encode())))
    assert hw("--json", "ls") == 0
    assert hw.out.isascii() and json.loads(hw.out)[299] == {"id": "x-00299", "name": "ä"}
    api.on("GET", "/api/jobs", Reply(body[:60]))
    assert hw("--json", "ls") == 1 and "not JSON" in hw.err


def test_ls_passes_its_selection_to_the_server(api: FakeApi, hw: Hw) -> None:
    api.on("GET", "/api/jobs", [])
    assert hw.json("ls", "--state", "running,failed", "--state", "held", "-e", "x", "-c", "lab", "--since", "2h",
                   "--match", "a.b&c", "--limit", "7") == []  # fmt: skip
    assert api.requests[-1].query == {
        "state": ["running", "failed", "held"], "experiment": ["x"], "cluster": ["lab"], "since": ["7200.0"],
        "match": ["a.b&c"], "limit": ["7"], "config": ["true"],
    }  # fmt: skip
    assert hw("ls") == 0
    assert hw.out == "" and "no jobs yet" in hw.err


# -- abort, delete, resubmit


def test_abort_of_ids_does_not_ask_and_goes_on_after_a_failure(api: FakeApi, hw: Hw) -> None:
    api.on("POST", "/api/jobs/a1/abort", job("x-a1", state="stopping"))
    api.on("POST", "/api/jobs/b2/abort", error(409, "refused", "x-b2 has already ended: succeeded"))
    api.on("POST", "/api/jobs/c3/abort", job("x-c3", state="stopped"))
    assert hw("abort", "a1", "b2", "c3") == 1
    assert hw.out.splitlines() == ["x-a1  stopping", "x-c3  stopped"]
    assert "already ended" in hw.err


def test_a_selection_is_shown_and_asked_for_before_anything_is_done(api: FakeApi, hw: Hw) -> None:
    """Capability 8."""
    api.on("GET", "/api/jobs", [job("x-a1", state="running"), job("x-b2", state="waiting")])
    api.on("POST", "/api/jobs/.*/abort", lambda r: job(r.path.split("/")[3], state="stopping"))
    assert hw("abort", "-e", "x") == 2
    assert "x-a1" in hw.err and "--yes" in hw.err
    assert api.sent("POST", ".*") == []
    assert hw("abort", "-e", "x", "--dry-run") == 0
    assert api.sent("POST", ".*") == []
    assert hw("abort", "-e", "x", "--yes") == 0
    assert hw.out.splitlines() == ["x-a1  stopping", "x-b2  stopping"]
    assert set(api.sent("GET", "/api/jobs")[0].query["state"]) == {
        "waiting",
        "running",
        "stopping",
        "held",
        "unknown",
    }


def test_a_server_that_can_store_nothing_is_told_beside_what_it_shows(api: FakeApi, hw: Hw) -> None:
    api.on(
        "GET",
        "/api/jobs",
        Reply([job("x-a1", state="running")], headers={"x-headway-trouble": "disk is full"}),
    )
    assert hw("ls") == 0
    assert "x-a1" in hw.out and "disk is full" not in hw.out
    assert (
        "hw: the server can store nothing at the moment: disk is full\n    what it shows may be old"
        in hw.err
    )


def test_a_dry_run_of_ids_looks_whether_they_are_there(api: FakeApi, hw: Hw) -> None:
    api.on("GET", "/api/jobs/a1", job("x-a1", state="succeeded"))
    assert hw("delete", "--dry-run", "a1") == 0
    assert hw.out == "would delete x-a1, which is succeeded\n"
    missing = error(404, "not_found", 'no job ends in "b2"')
    api.on("GET", "/api/jobs/b2", missing)
    api.on("GET", "/api/arrays/b2", missing)
    assert hw("delete", "--dry-run", "b2") == hw("resubmit", "--dry-run", "b2") == 3
    assert "would" not in hw.err and api.sent("DELETE", ".*") == api.sent("POST", ".*") == []


def test_abort_needs_ids_or_a_selection_and_never_takes_everything_by_itself(
    api: FakeApi, hw: Hw
) -> None:
    assert (
        hw("abort")
        == hw("abort", "--yes")
        == hw("abort", "a1", "-e", "x")
        == hw("delete", "--yes")
        == 2
    )
    assert api.requests == []


def test_delete_by_age_selects_what_is_older(api: FakeApi, hw: Hw) -> None:
    api.on("GET", "/api/jobs", [job("x-a1"), job("x-b2", submitted_at="2999-01-01T00:00:00Z")])
    api.on("DELETE", "/api/jobs/.*", {})
    assert hw("delete", "--older-than", "1s", "--yes") == 0
    assert [r.path for r in api.sent("DELETE", ".*")] == ["/api/jobs/x-a1"]
    assert hw.json("delete", "a1")[0]["id"] == "a1"


def test_resubmit_sends_only_what_changed(api: FakeApi, hw: Hw) -> None:
    """Capabilities 5, 6."""
    api.on("GET", "/api/jobs/a1", job("x-a1", state="running", ended_at=None))
    api.on("POST", "/api/jobs/x-a1/resubmit", Reply(job("x-new00", parent="x-a1"), 201))
    assert hw("resubmit", "a1", "-n", "16", "--env", "A=1") == 0
    assert hw.out == "x-new00\n"
    assert "x-a1, which was running, is being stopped" in hw.err
    spec = api.sent("POST", ".*resubmit")[0].body["spec"]
    assert spec.pop("umask") >= 0 and spec.pop("rlimits")
    assert spec == {"processes": 16, "env_set": ["A"]}
    assert hw.json("resubmit", "a1", "--", "python", "-n", "x")["parent"] == "x-a1"
    assert api.sent("POST", ".*resubmit")[1].body["spec"]["command"] == ["python", "-n", "x"]


def test_a_refusal_of_the_server_is_told_and_the_other_jobs_are_run_again(
    api: FakeApi, hw: Hw
) -> None:
    """Capability 52: whether a command held a secret that is not kept, the server knows."""
    api.on("GET", "/api/jobs/a1", job("x-a1", command=["x", "--api-key", "********"]))
    api.on("GET", "/api/jobs/b2", job("x-b2"))
    refusal = {
        "error": {
            "code": "refused",
            "message": "the command of x-a1 held a secret",
            "hint": "give it again",
        }
    }
    api.on("POST", "/api/jobs/x-a1/resubmit", Reply(refusal, 409))
    api.on("POST", "/api/jobs/x-b2/resubmit", Reply(job("x-new00"), 201))
    assert hw("resubmit", "a1", "b2") != 0
    assert "held a secret" in hw.err and "give it again" in hw.err and "x-new00" in hw.out


def test_a_selection_of_jobs_is_run_again_after_a_yes(api: FakeApi, hw: Hw) -> None:
    """Capability 8."""
    api.on("GET", "/api/jobs", [job("x-a1", state="failed"), job("x-b2", state="failed")])
    for name in ("x-a1", "x-b2"):
        api.on("GET", f"/api/jobs/{name}", job(name, state="failed"))
        api.on("POST", f"/api/jobs/{name}/resubmit", Reply(job(f"{name}-new"), 201))
    assert hw("resubmit", "-e", "digits", "--state", "failed") == 2
    assert "2 jobs to resubmit" in hw.err and "--yes" in hw.err and api.sent("POST", ".*") == []
    assert (
        hw("resubmit", "-e", "digits", "--state", "failed", "--dry-run") == 0
        and api.sent("POST", ".*") == []
    )
    assert hw("resubmit", "-e", "digits", "--state", "failed", "--yes") == 0
    assert hw.out.splitlines() == ["x-a1 → x-a1-new", "x-b2 → x-b2-new"]
    assert all("experiment" not in one.body["spec"] for one in api.sent("POST", ".*"))


# -- metrics, gc, server, completion

SERIES = {
    "loss": [
        {
            "rank": 0,
            "attempt": 1,
            "step": [0, 1, 2],
            "time": ["t", "t", "t"],
            "value": [1.5, "NaN", 0.5],
        }
    ]
}


def test_metrics_are_passed_on_as_the_server_said_them(api: FakeApi, hw: Hw) -> None:
    api.on("GET", "/api/jobs/a1/metrics", {"x-a1": SERIES})
    api.on("GET", "/api/jobs/b2/metrics", {"x-b2": {}})
    assert hw.json("metrics", "a1", "b2", "a1", "-m", "loss", "-m", "b c", "--rank", "0", "--points", "9") == {
        "x-a1": SERIES, "x-b2": {},
    }  # fmt: skip
    asked = api.sent("GET", "/api/jobs/a1/metrics")[0]
    assert asked.query == {"name": ["loss", "b c"], "rank": ["0"], "points": ["9"]}


def test_metrics_as_a_table(api: FakeApi, hw: Hw) -> None:
    api.on("GET", "/api/jobs/a1/metrics", {"x-a1": SERIES})
    assert hw("metrics", "a1") == 0
    head, row = hw.out.splitlines()
    assert head.split() == [
        "metric",
        "rank",
        "attempt",
        "points",
        "step",
        "last",
        "min",
        "max",
        "not",
        "finite",
    ]
    assert row.split() == ["loss", "0", "1", "3", "2", "0.5", "0.5", "1.5", "1"]


def test_gc_of_old_jobs_asks_first(api: FakeApi, hw: Hw) -> None:
    api.on("POST", "/api/gc", {"jobs": 3, "bytes": 2048})
    assert hw("gc", "--older-than", "30d") == 2
    assert [r.body for r in api.sent("POST", "/api/gc")] == [
        {"older_than_days": 30.0, "dry_run": True}
    ]
    assert hw("gc", "--older-than", "30d", "--yes") == 0
    assert hw.out == "removed 3 jobs, 2.0 KiB\n"
    assert hw.json("gc") == {"jobs": 3, "bytes": 2048}
    assert api.requests[-1].body == {"older_than_days": None, "dry_run": False}


def test_server_status_gives_the_contract(api: FakeApi, hw: Hw, home: Path) -> None:
    about = {
        "pid": 7,
        "address": "/s.sock",
        "url": "http://127.0.0.1:1",
        "version": "0.1.0",
        "home": str(home),
    }
    api.on("GET", "/api/server", about | {"started_at": None, "jobs": {"running": 2}})
    found = hw.json("server", "status")
    assert {key: found[key] for key in ("pid", "address", "version", "home")} == {
        "pid": 7, "address": "/s.sock", "version": "0.1.0", "home": str(home),
    }  # fmt: skip
    assert hw("server", "status") == 0
    assert "2 running" in hw.out
    assert hw("server", "statsu") == 2 and 'did you mean "status"?' in hw.err


def test_the_log_of_a_dead_server_can_be_read(home: Path, hw: Hw) -> None:
    assert hw("server", "logs") == 1
    (home / "server.log").write_text("".join(f"line {i}\n" for i in range(200)))
    assert hw("server", "logs", "--tail", "2") == 0
    assert hw.out == "line 198\nline 199\n"


def test_completion_knows_every_verb_and_option(api: FakeApi, hw: Hw) -> None:
    api.on("GET", "/api/jobs", [job("x-a1")])
    for shell in ("bash", "zsh", "fish"):
        assert hw("completion", shell) == 0
        assert "resubmit" in hw.out and "max-duration" in hw.out
    assert hw("completion", "ids") == 0
    assert hw.out == "x-a1\n"
    assert hw("completion", "tcsh") == 2


def test_config_shows_each_value_and_where_it_came_from(
    hw: Hw, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Capabilities 50, 52."""
    monkeypatch.setenv("HEADWAY_MAX_RUNNING", "3")
    private = tmp_path / "config" / "headway" / "private.yaml"
    private.parent.mkdir(parents=True)
    private.write_text("secrets: {WANDB_API_KEY: very-secret-value}\n")
    private.chmod(0o600)
    assert hw("config") == 0
    row = next(line for line in hw.out.splitlines() if line.startswith("max_running"))
    assert row.split() == ["max_running", "3", "HEADWAY_MAX_RUNNING"]
    assert "WANDB_API_KEY" in hw.out and "very-secret-value" not in hw.out
    assert hw.json("config")["max_running"] == {"value": 3, "origin": "HEADWAY_MAX_RUNNING"}
    assert hw("config", "max_running") == 0 and hw.out == "3\n"
    assert hw("config", "max_runing") == 2 and 'did you mean "max_running"?' in hw.err


def test_a_setting_of_the_server_in_a_project_is_told_to_have_no_effect(
    hw: Hw, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "headway.yaml").write_text("max_running: 1\nexperiment: e\n")
    assert hw("config", "max_running") == 0 and "no effect: the server" in hw.err
    assert hw("config", "experiment") == 0 and "no effect" not in hw.err
    assert hw("config") == 0 and "no effect: max_running; " in hw.err
    assert hw("config", "set") == 2 and "set NAME VALUE" in hw.err
    monkeypatch.setenv("HEADWAY_CONFIG", str(tmp_path / "headway.yaml"))
    assert hw("config", "max_running") == 0 and "no effect" not in hw.err


def test_options_without_a_verb_ask_for_one(hw: Hw) -> None:
    assert hw("-n", "4") == 2
    assert hw.err.startswith("hw: -n is for a command of hw, and none was given\n")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["submit", "job.yaml", "--set", "lr=0.01"], "hw submit --set lr=0.01 job.yaml"),
        (["run", "./job.yaml", "--smoke"], "hw run --smoke ./job.yaml"),
        (["run", "./job.yaml", "extra"], "a job file stands alone: hw run ./job.yaml"),
        (
            ["submit", "--set", "a=1", "job.yaml", "--name", "a b"],
            "hw submit --name 'a b' job.yaml",
        ),
    ],
)
def test_words_after_a_job_file_are_told_where_they_belong(
    api: FakeApi,
    hw: Hw,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    hint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text("command: 'true'\n")
    assert hw(*words) == (125 if words[0] == "run" else 2)
    assert "has words after it" in hw.err and hint in hw.err
    assert not api.sent("POST", ".*")
