"""The machine-readable contract, end to end: real `hw`, real server, real jobs."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.driver import HW, PYTHON, Hw, alive
from tests.waiting import wait_until

JOB_KEYS = set(
    "id uuid name experiment state state_since cluster engine engine_id engine_url attach command cwd gpus "
    "submitted_at started_at ended_at elapsed_s exit_code signal parent tags config progress usage metrics "
    "page attempts".split()
)
ATTEMPT_KEYS = {"number", "state", "cause", "exit_code", "signal", "tasks"}
PROCESS_KEYS = {
    "rank",
    "local_rank",
    "pid",
    "state",
    "exit_code",
    "signal",
    "started_at",
    "ended_at",
    "logs",
}
METRICS = """
import headway as hw
hw.init(config={"lr": 0.1, "name": "é"}, tags=["from-python"])
for i in range(50):
    hw.log({"loss": 1 / (i + 1), "odd": float("nan") if i == 49 else float("inf")}, step=i)
"""


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    return Hw(home, tmp_path)


def iso_utc(text: str) -> bool:
    return text.endswith("Z") and len(text) == len("2026-11-15T12:00:00.000000Z")


# -- query, ls, metrics


@pytest.mark.cap(4, 9, 15, 27)
def test_q_and_ls_give_the_objects_of_the_contract(hw: Hw) -> None:
    script = hw.script(METRICS)
    assert hw("run", "-e", "exp", "--name", "digits", "--tag", "t1", PYTHON, script).returncode == 0
    (row,) = hw.json("ls")
    found = hw.json("q", row["id"])
    assert set(found) >= JOB_KEYS
    (attempt,) = found["attempts"]
    assert set(attempt) >= ATTEMPT_KEYS
    (task,) = attempt["tasks"]
    assert {"name", "node", "state", "processes"} <= set(task)
    (process,) = task["processes"]
    assert set(process) >= PROCESS_KEYS
    assert (found["name"], found["experiment"], found["cluster"], found["engine"]) == (
        "digits",
        "exp",
        "here",
        "local",
    )
    assert (found["state"], found["exit_code"], found["signal"]) == ("succeeded", 0, None)
    assert found["page"].startswith("http://127.0.0.1:")
    assert found["page"].endswith(f"/j/{found['id']}")
    assert found["command"] == [PYTHON, script] and found["cwd"] == str(hw.cwd)
    assert set(found["tags"]) == {"t1", "from-python"}
    assert found["config"] == {"lr": 0.1, "name": "é"}
    assert found["metrics"] == {"loss": 1 / 50, "odd": "NaN"}
    assert all(
        iso_utc(found[key]) for key in ("state_since", "submitted_at", "started_at", "ended_at")
    )
    assert Path(process["logs"]["stdout"]).is_absolute()
    assert "attempts" not in row and set(row) >= JOB_KEYS - {
        "attempts",
        "config",
        "progress",
        "usage",
    }


@pytest.mark.cap(4)
def test_any_unique_ending_of_an_id_selects_and_others_exit_3(hw: Hw) -> None:
    first = hw.submit("true")
    suffix = first.rsplit("-", 1)[1]
    assert hw.json("q", suffix)["id"] == hw.json("q", suffix[-3:])["id"] == first
    missing = hw("q", "zzzzz")
    assert missing.returncode == 3 and missing.stdout == b"" and missing.stderr.startswith(b"hw: ")
    ids = [first]
    while (shared := ids[-1][-1]) not in {i[-1] for i in ids[:-1]}:
        ids.append(hw.submit("true"))
    several = hw("q", shared)
    assert several.returncode == 3
    assert all(i.encode() in several.stderr for i in ids if i.endswith(shared))
    for job in ids:
        hw.wait_ended(job)


@pytest.mark.cap(26)
def test_metrics_json_has_one_entry_per_rank_and_every_point(hw: Hw) -> None:
    assert hw("run", "-n", "2", PYTHON, hw.script(METRICS)).returncode == 0
    job = hw.json("ls")[0]["id"]
    found = hw.json("metrics", job, "-m", "loss", "-m", "odd")
    assert set(found) == {job} and set(found[job]) == {"loss", "odd"}
    assert sorted(entry["rank"] for entry in found[job]["loss"]) == [0, 1]
    for entry in found[job]["loss"]:
        assert set(entry) >= {"rank", "attempt", "step", "time", "value"}
        assert entry["step"] == list(range(50)) and entry["value"] == [
            1 / (i + 1) for i in range(50)
        ]
        assert len(entry["time"]) == 50
    assert found[job]["odd"][0]["value"] == ["Infinity"] * 49 + ["NaN"]
    (one,) = hw.json("metrics", job, "-m", "loss", "--rank", "1")[job]["loss"]
    assert one["rank"] == 1
    assert (
        len(
            hw.json("metrics", job, "-m", "loss", "--rank", "1", "--points", "10")[job]["loss"][0][
                "step"
            ]
        )
        < 50
    )
    table = hw("metrics", job)
    assert table.returncode == 0 and b"loss" in table.stdout and b"nan" in table.stdout


@pytest.mark.cap(9)
def test_ls_selects_by_state_experiment_age_and_pattern(hw: Hw) -> None:
    good = hw.submit("-e", "alpha", "true")
    bad = hw.submit("-e", "beta", "--name", "crash", "false")
    hw.wait_ended(good), hw.wait_ended(bad)

    def ids(*options: str) -> set[str]:
        return {row["id"] for row in hw.json("ls", *options)}

    assert ids() == ids("--since", "1h") == ids("-c", "here") == {good, bad}
    assert ids("--state", "failed") == ids("-e", "beta") == ids("--match", "^cr.sh") == {bad}
    assert ids("--state", "succeeded,failed") == {good, bad}
    assert ids("-c", "elsewhere") == set()
    assert [row["id"] for row in hw.json("ls")] == [bad, good]


# -- run and submit

AWKWARD = [
    ["-n", "8", "--", "--json", "-h", "--help"],
    ["a b", "it's", '"q"', "$(touch evil)", ";", "*", "", "\\", "{{ lr }}"],
    ["é", "中", "\n", "\t", "-", "--", "--name=x"],
]  # fmt: skip


@pytest.mark.cap(1)
@pytest.mark.parametrize("words", AWKWARD)
def test_the_command_arrives_untouched(hw: Hw, words: list[str]) -> None:
    script = hw.script("import json, sys; print(json.dumps(sys.argv[1:]))")
    for verb in (["run"], ["-n", "1", "run", "--tag", "x"], ["submit", "--wait"], ["run", "--"]):
        done = hw(*verb, PYTHON, script, *words)
        assert (done.returncode, json.loads(done.stdout)) == (0, words), done.stderr.decode()
    assert not (hw.cwd / "evil").exists()


def test_an_argument_that_is_not_utf_8_arrives_as_it_was(hw: Hw) -> None:
    script = hw.script(
        "import os, sys; os.write(1, os.fsencode(sys.argv[1]) + os.fsencode(os.environ['RAW']))"
    )
    done = subprocess.run(
        [*(os.fsencode(w) for w in HW), b"run", PYTHON.encode(), script.encode(), b"\xff\xfe"],
        cwd=hw.cwd, env={os.fsencode(k): os.fsencode(v) for k, v in hw.env.items()} | {b"RAW": b"\xe9"},
        capture_output=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, b"\xff\xfe\xe9"), done.stderr.decode()


@pytest.mark.cap(16)
def test_piped_output_of_one_process_is_byte_exact(hw: Hw) -> None:
    out = bytes(range(256)) * 5000 + b"\r\x1b[2J no newline at the end"
    err = b"\xfferror\n\x00tail"
    (hw.cwd / "out").write_bytes(out)
    (hw.cwd / "err").write_bytes(err)
    done = hw("run", "sh", "-c", "cat out; cat err >&2")
    assert (done.returncode, done.stdout) == (0, out)
    assert err in done.stderr
    job = hw.json("ls")[0]["id"]
    assert hw("logs", job, "--stream", "stdout").stdout == out
    assert hw("logs", job, "--stream", "stderr", "--rank", "0").stdout == err
    assert hw("logs", job, "--stream", "stdout", "--bytes", "9").stdout == out[-9:]


@pytest.mark.cap(1, 49)
def test_a_job_runs_in_the_submitters_folder_environment_umask_and_limits(hw: Hw) -> None:
    script = hw.script(
        "import json, os, resource as r\ne = os.environ\n"
        "found = [os.getcwd(), e['A'], e.get('B'), os.umask(0), r.getrlimit(r.RLIMIT_CORE)]\n"
        "print(json.dumps(found + [e.get('RANK'), e.get('WORLD_SIZE'), os.path.isdir(e['HEADWAY_OUTPUT_DIR'])]))"
    )
    words = " ".join([*HW, "run", "--env", "A=from-option", PYTHON, script])
    done = subprocess.run(
        ["sh", "-c", f"umask 027; ulimit -c 0; exec {words}"],
        cwd=hw.cwd, env=hw.env | {"A": "from-shell", "B": "b"}, capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout) == [
        str(hw.cwd),
        "from-option",
        "b",
        0o027,
        [0, 0],
        None,
        None,
        True,
    ]


def test_stdin_is_passed_on_and_the_environment_has_nothing_that_python_added(hw: Hw) -> None:
    bare = {k: v for k, v in hw.env.items() if k not in ("LANG", "LC_ALL", "LC_CTYPE")}
    done = subprocess.run(
        [*HW, "run", "sh", "-c", "cat; echo [$LC_CTYPE]"],
        cwd=hw.cwd,
        env=bare,
        input=b"secret",
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, b"secret[]\n")


@pytest.mark.cap(14)
def test_submit_gives_the_id_and_the_way_back(hw: Hw) -> None:
    done = hw("submit", "--name", "digits", "sh", "-c", "exit 3")
    job = done.stdout.decode().strip()
    assert done.returncode == 0 and job.startswith("digits-") and done.stdout.count(b"\n") == 1
    for words in ("logs -f", "abort", "resubmit"):
        assert f"hw {words} {job[-5:]}".encode() in done.stderr
    found = hw.wait_ended(job)
    assert (found["state"], found["exit_code"]) == ("failed", 3)


@pytest.mark.cap(10)
def test_wait_and_limits(hw: Hw) -> None:
    assert hw("submit", "--wait", "sh", "-c", "exit 5").returncode == 5
    started = time.monotonic()
    done = hw("run", "--max-duration", "1s", "sleep", "60")
    assert done.returncode not in (0, 125) and time.monotonic() - started < 40
    found = hw.json("q", hw.json("ls")[0]["id"])
    assert (found["state"], found["attempts"][0]["cause"]["cause"]) == ("failed", "walltime")


def test_own_failures_of_run_exit_125_and_usage_exits_2(hw: Hw) -> None:
    assert hw("run").returncode == hw("-n", "x", "run", "true").returncode == 125
    assert hw("run", "--cpus", "100000", "true").returncode == 125
    assert hw("submit", "--cpus", "100000", "true").returncode == 1
    assert (
        hw("submit").returncode
        == hw("sumbit", "true").returncode
        == hw("ls", "--state", "x").returncode
        == 2
    )
    assert hw("run", "-c", "nowhere", "true").returncode == 125
    assert hw("submit", "-c", "nowhere", "true").returncode == 2


def test_several_processes_come_with_their_rank(hw: Hw) -> None:
    done = hw(
        "run", "-n", "3", "sh", "-c", "echo out $RANK of $WORLD_SIZE; echo err $LOCAL_RANK >&2"
    )
    assert done.returncode == 0
    lines = done.stdout.decode().splitlines()
    assert sorted(line.split("│ ")[1] for line in lines) == [
        f"out {rank} of 3" for rank in range(3)
    ]
    assert all(line.split("│")[0].split()[1] == line.split()[-3] for line in lines)
    assert all(f"{rank} │ err {rank}" in done.stderr.decode() for rank in range(3))


def test_a_metric_that_is_refused_is_told_once(hw: Hw) -> None:
    done = hw("run", PYTHON, hw.script("import headway as hw\nhw.log({'name': 'x'})\n"))
    assert done.stderr.decode().count("is not a number") == 1


# -- signals

PATIENT = """
import signal, sys, time
def told(number, frame):
    print("got", number, flush=True)
    if number == signal.SIGTERM or "die" in sys.argv: sys.exit(9)
for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, told)
print("ready", flush=True)
while True: time.sleep(0.05)
"""


def started_run(hw: Hw, *words: str) -> "subprocess.Popen[bytes]":
    child = hw.start("run", PYTHON, "-u", hw.script(PATIENT), *words)
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    return child


def test_ctrl_c_interrupts_the_job_and_waits_for_it(hw: Hw) -> None:
    child = started_run(hw, "die")
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert (child.returncode, out) == (9, b"got 2\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_job_ends_in_the_state_and_words_of_an_aborted_one(
    hw: Hw, number: int
) -> None:
    """A plain program, which ends by KeyboardInterrupt or by the signal; and one of several ranks."""
    program = hw.script("import time\nprint('ready', flush=True)\ntime.sleep(600)\n", "plain.py")
    for ranks in ("1", "2"):
        child = hw.start("run", "-n", ranks, PYTHON, program)
        assert child.stdout is not None and b"ready" in child.stdout.readline()
        child.send_signal(number)
        _, told = child.communicate(timeout=60)
        job = hw.json("ls")[0]
        assert (child.returncode, job["state"]) == (128 + number, "stopped")
        cause = hw.json("q", job["id"])["attempts"][-1]["cause"]
        assert (cause["cause"], cause["text"]) == ("cancelled", "stopped on request")
        assert "was stopped after" in told.decode() and "stopped on request" in told.decode()
        assert "failed" not in told.decode() and "first" not in told.decode()


def test_a_second_ctrl_c_terminates_the_job(hw: Hw) -> None:
    child = started_run(hw)
    assert child.stdout is not None
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == b"got 2\n"
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert (child.returncode, out) == (9, b"got 15\n")
    assert hw.json("ls")[0]["state"] == "stopped"


def test_sigterm_passes_on(hw: Hw) -> None:
    child = started_run(hw)
    child.terminate()
    out, _ = child.communicate(timeout=60)
    assert (child.returncode, out) == (9, b"got 15\n")


def test_sighup_and_sigkill_leave_the_job_running(hw: Hw) -> None:
    for number in (signal.SIGHUP, signal.SIGKILL):
        child = started_run(hw, "die")
        child.send_signal(number)
        child.communicate(timeout=60)
        job = hw.json("ls")[0]["id"]
        found = hw.wait_state(job, "running")
        assert alive(found["attempts"][0]["tasks"][0]["processes"][0]["pid"])
        assert hw("abort", job).returncode == 0
        hw.wait_ended(job)


def test_run_survives_the_servers_death_and_misses_nothing(hw: Hw) -> None:
    """P10, P13."""
    script = hw.script("import time\nfor i in range(60): print(i, flush=True); time.sleep(0.05)\n")
    child = hw.start("run", PYTHON, script)
    assert child.stdout is not None
    assert child.stdout.readline() == b"0\n"
    hw.kill_server()
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err.decode()
    assert out == b"".join(b"%d\n" % i for i in range(1, 60))
    gone, back = (err.count(words) for words in (b"the server is gone", b"the server is back"))
    assert gone == back <= 1  # none: the next one answered at once


# -- logs


@pytest.mark.cap(16, 17)
def test_logs_by_rank_stream_tail_and_pattern(hw: Hw) -> None:
    script = "for i in 1 2 3 4 5; do echo out $RANK $i; done; echo err $RANK >&2"
    assert hw("run", "-n", "2", "sh", "-c", script).returncode == 0
    job = hw.json("ls")[0]["id"]
    merged = hw("logs", job).stdout.decode().splitlines()
    assert len(merged) == 12 and all(" │ " in line for line in merged)
    raw = hw("logs", job, "--rank", "1", "--stream", "stdout").stdout
    assert raw == b"".join(b"out 1 %d\n" % i for i in range(1, 6))
    assert (
        hw("logs", job, "--rank", "1", "--stream", "stdout", "--tail", "2").stdout
        == b"out 1 4\nout 1 5\n"
    )
    found = hw("logs", job, "--grep", "out [01] 3").stdout.decode().splitlines()
    assert sorted(line.split("│ ")[1] for line in found) == ["out 0 3", "out 1 3"]
    assert len(hw("logs", job, "--rank", "0").stdout.splitlines()) == 6
    assert len(hw("logs", job, "--stream", "stderr").stdout.splitlines()) == 2
    lines = hw.json("logs", job, "--rank", "0", "--stream", "stdout")["lines"]
    assert [line["text"] for line in lines] == [f"out 0 {i}" for i in range(1, 6)]
    assert hw("logs", job, "--rank", "7", "--stream", "stdout").returncode in (0, 3)
    assert hw("logs", job, "--attempt", "2").returncode == 2


@pytest.mark.cap(16)
@pytest.mark.parametrize("selection", [[], ["--stream", "stdout"]])
def test_logs_follow_a_job_live_to_its_end(hw: Hw, selection: list[str]) -> None:
    job = hw.submit("sh", "-c", "echo first; while [ ! -e go ]; do sleep 0.05; done; echo last")
    child = hw.start("logs", "-f", job, *selection)
    assert child.stdout is not None
    assert child.stdout.readline().endswith(b"first\n")
    (hw.cwd / "go").touch()
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0 and out.endswith(b"last\n"), err.decode()


@pytest.mark.cap(16)
def test_logs_of_a_job_that_waits_say_so(hw: Hw) -> None:
    (hw.home.parent / "config.yaml").write_text("max_running: 1\n")
    hw.env["HEADWAY_MAX_RUNNING"] = "1"
    first, second = hw.submit("sleep", "60"), hw.submit("echo", "done")
    hw.wait_state(first, "running")
    done = hw("logs", second)
    assert (done.returncode, done.stdout) == (0, b"") and b"has not started yet" in done.stderr
    follower = hw.start("logs", "-f", second, "--stream", "stdout")
    assert hw("abort", first).returncode == 0
    assert follower.communicate(timeout=60)[0] == b"done\n"
    assert hw.wait_ended(first)["state"] == "stopped"


# -- abort, resubmit, delete, gc, server, doctor


@pytest.mark.cap(5, 8)
def test_abort_resubmit_and_delete_of_several(hw: Hw) -> None:
    jobs = [hw.submit("-e", "exp", "sleep", "300") for _ in range(2)]
    for job in jobs:
        hw.wait_state(job, "running")
    again = hw.json("resubmit", jobs[0], "-n", "2", "--tag", "again")
    assert again["parent"] == jobs[0] and again["experiment"] == "exp"
    assert hw.wait_ended(jobs[0])["state"] == "stopped"
    assert hw("abort", "-e", "exp").returncode == 2  # nobody to ask
    assert hw.json("q", jobs[1])["state"] == "running"
    assert hw("abort", "-e", "exp", "--yes").returncode == 0
    for job in (jobs[1], again["id"]):
        assert hw.wait_ended(job)["state"] == "stopped"
    assert hw("abort", jobs[1]).returncode == 1
    assert hw("delete", jobs[0]).returncode == 0
    assert hw("q", jobs[0]).returncode == 3
    assert hw("delete", "-e", "exp", "--yes").returncode == 0
    assert hw.json("ls") == []
    assert hw.json("gc")["jobs"] == 3


def test_a_running_job_cannot_be_deleted(hw: Hw) -> None:
    job = hw.submit("sleep", "300")
    hw.wait_state(job, "running")
    assert hw("delete", job).returncode == 1
    assert hw("abort", job).returncode == 0
    hw.wait_ended(job)


def test_looking_at_the_server_of_a_home_that_is_not_there_does_not_make_it(hw: Hw) -> None:
    nowhere = hw.home.with_name("nowhere")
    codes = [
        hw("server", verb, env={"HEADWAY_HOME": str(nowhere)}).returncode
        for verb in ("status", "stop", "logs")
    ]
    assert codes == [4, 0, 1] and not nowhere.exists()


def test_server_start_status_stop(hw: Hw) -> None:
    assert hw("server", "status").returncode == 4
    assert hw("server", "start").returncode == 0
    found = hw.json("server", "status")
    assert {"pid", "address", "version", "home"} <= set(found)
    assert found["home"] == str(hw.home) and alive(found["pid"])
    assert hw("server", "stop").returncode == 0
    wait_until(lambda: not alive(found["pid"]), what="the server's end")
    assert hw("server", "stop").returncode == 0
    assert hw("server", "logs").returncode == 0


def test_jobs_do_not_notice_that_the_server_stops(hw: Hw) -> None:
    job = hw.submit("sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; echo done")
    hw.wait_state(job, "running")
    assert hw("server", "stop").returncode == 0
    (hw.cwd / "go").touch()
    assert hw.wait_ended(job)["state"] == "succeeded"
    wait_until(lambda: hw("logs", job, "--stream", "stdout").stdout == b"done\n", what="the output")


def test_doctor_finds_nothing_wrong_in_a_good_home_and_names_what_is(hw: Hw) -> None:
    hw.home.chmod(0o700)
    good = hw("doctor")
    assert good.returncode == 0, good.stdout.decode()
    assert hw.json("doctor")[0]["check"] == "python"
    hw.home.chmod(0o755)
    bad = hw("doctor")
    hw.home.chmod(0o700)
    assert bad.returncode == 1 and f"chmod 700 {hw.home}".encode() in bad.stdout


@pytest.mark.cap(15)
def test_assets_of_a_job_are_fetched_bit_by_bit(hw: Hw) -> None:
    assert hw("run", "-n", "2", "sh", "-c", "echo $RANK").returncode == 0
    job = hw.json("ls")[0]["id"]
    for _ in range(2):
        assert hw("q", job, "--assets").returncode == 0
        files = sorted(p for p in (hw.cwd / "assets" / job).rglob("stdout-*"))
        assert [p.read_bytes() for p in files] == [b"0\n", b"1\n"]


@pytest.mark.cap(40)
def test_q_of_a_failed_job_shows_the_traceback_of_the_rank_that_failed_first(hw: Hw) -> None:
    text = "import os, time\nimport headway as hw\nhw.init()\n"
    text += "if os.environ['RANK'] == '1': raise ValueError('bad batch')\ntime.sleep(60)\n"
    assert hw("run", "-n", "3", PYTHON, hw.script(text)).returncode == 1
    page = hw("q", hw.json("ls")[0]["id"]).stdout.decode()
    for said in (
        "ValueError: bad batch",
        "Traceback",
        "train.py",
        "rank 1",
        "because: rank 1 failed",
        "exit code 1",
    ):
        assert said in page, page
    assert any("stderr-2" in line for line in page.splitlines())


def test_json_is_ascii_and_holds_no_number_that_json_does_not_know(hw: Hw) -> None:
    """B1."""
    assert hw("run", PYTHON, hw.script(METRICS)).returncode == 0
    job = hw.json("ls")[0]["id"]
    for words in (
        ["q", job],
        ["ls"],
        ["metrics", job],
        ["config"],
        ["server", "status"],
        ["logs", job],
    ):
        text = hw(*words, "--json").stdout.decode("ascii")
        assert "NaN" not in text.replace('"NaN"', "") and "Infinity" not in text.replace(
            '"Infinity"', ""
        )
        assert json.loads(text)
