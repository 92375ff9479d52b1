"""Diagnosis of logs: the golden cases, the reader, the time line (src/headway/diagnose)."""

import gzip
import json
from pathlib import Path

import pytest

from headway.diagnose import reader
from headway.diagnose.causes import CAUSES
from headway.diagnose.evidence import Evidence, Raised
from headway.diagnose.reader import read_stream
from headway.diagnose.rulebook import RULES
from headway.diagnose.runner import Diagnosis, diagnose
from headway.views.cli.main import main
from tests.diagnose_cases import Case, golden_cases

CASES = list(golden_cases())


def ask(case: Case) -> Diagnosis:
    streams = [read_stream(name, [text.encode()]) for name, text in case.streams]
    return diagnose(Evidence(streams=streams, exit_code=case.exit_code, signal=case.signal))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_golden_log_gives_its_cause(case: Case) -> None:
    found = ask(case)
    if case.label == "none":
        assert found.findings == []
        return
    best = found.findings[0]
    assert best.cause == case.label
    assert case.evidence in str(best.evidence[0]["text"])
    if case.rank is not None:
        assert best.rank == case.rank


def test_every_cause_has_a_golden_log() -> None:
    ours = {
        "unknown",
        "agent_lost",
        "hang",
        "agent_not_started",
        "launch_failed",
        "start_lost",
        "output_not_sent",
        "declared_transient",
        "declared_conflict",
        "declared_permanent",
    }
    assert set(CAUSES) - ours <= {case.label for case in CASES}


def test_a_rule_names_a_known_cause_and_literals_in_lower_case() -> None:
    for rule in RULES:
        assert rule.cause in CAUSES
        assert all(literal == literal.lower() for literal in rule.literals)
    assert all(cause.retry.words() for cause in CAUSES.values())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_long_log_gives_the_same_cause_as_a_short_one(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sieve for long logs must let through what the rules need."""
    monkeypatch.setattr(reader, "WHOLE_BYTES_MAX", 1000)
    monkeypatch.setattr(reader, "HEAD_LINES", 5)
    monkeypatch.setattr(reader, "TAIL_LINES", 5)
    chatter = "".join(f"the quick brown fox jumps over dog {i}\n" for i in range(500))
    streams = [
        read_stream(name, [(chatter + text + chatter).encode()]) for name, text in case.streams
    ]
    found = diagnose(Evidence(streams=streams, exit_code=case.exit_code, signal=case.signal))
    said = found.findings[0].cause if found.findings else "none"
    shell = case.label == "command_not_found"  # counts less where a script went on
    assert said == case.label or (shell and case.exit_code not in (126, 127))


def test_a_line_that_the_last_good_attempt_printed_is_no_cause() -> None:
    text = "Traceback (most recent call last):\n  File 'a.py', line 1\nValueError: usual 17\n"
    stream = read_stream("stderr", [text.encode()])
    usual = frozenset({reader.shape_of("ValueError: usual 18")})
    assert diagnose(Evidence(streams=[stream], exit_code=1)).findings
    assert not diagnose(Evidence(streams=[stream], exit_code=1, usual_lines=usual)).findings


def test_a_job_that_went_on_did_not_die_of_it() -> None:
    steps = "".join(f"step {i} loss 0.1\n" for i in range(9))
    failed = "Traceback (most recent call last):\n  File 'a.py', line 1\nKeyError: 'x'\n"
    assert not diagnose(
        Evidence(streams=[read_stream("out", [(failed + steps).encode()])])
    ).findings
    assert diagnose(Evidence(streams=[read_stream("out", [(steps + failed).encode()])])).findings


def test_the_offset_finds_the_line_in_the_file() -> None:
    text = b"one\ntwo\nRuntimeError: CUDA out of memory\n"
    found = diagnose(Evidence(streams=[read_stream("err", [text[:5], text[5:]])], exit_code=1))
    offset = found.findings[0].evidence[0]["offset"]
    assert isinstance(offset, int)
    assert text[offset:].startswith(b"RuntimeError")


def test_what_is_unknown_is_said_to_be_unknown() -> None:
    found = diagnose(Evidence(streams=[read_stream("err", [b"so it goes\n"])], exit_code=3))
    assert found.findings == []
    assert found.verdict == "unknown: exited with code 3; its last line: so it goes"
    assert found.fingerprint


def test_the_same_failure_has_the_same_fingerprint() -> None:
    def print_of(text: bytes) -> str | None:
        return diagnose(Evidence(streams=[read_stream("err", [text])], exit_code=3)).fingerprint

    assert print_of(b"gave up at 17\n") == print_of(b"gave up at 231\n")
    assert print_of(b"gave up at 17\n") != print_of(b"went home at 17\n")


def test_why_logs_needs_no_server(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rank3.err").write_text(
        "Traceback (most recent call last):\n  File 't.py', line 2\nNameError: name 'x'\n"
    )
    with gzip.open(tmp_path / "rank0.err.gz", "wb") as file:
        file.write(b"RuntimeError: [gloo/pair.cc:534] Connection closed by peer [10.0.0.3]:1\n")
    assert main(["why", "--logs", str(tmp_path), "--exit-code", "1", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    best = found["findings"][0]
    assert (best["cause"], best["rank"], best["class"]) == ("code_exception", 3, "user")
    assert best["evidence"][0]["stream"] == "rank3.err"
    assert {
        "cause",
        "class",
        "confidence",
        "task",
        "rank",
        "node",
        "evidence",
        "advice",
        "retry",
    } <= set(best)


def test_why_logs_reads_signals_by_name(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out"
    path.write_text("step 1\n")
    assert main(["why", "--logs", str(path), "--signal", "segv"]) == 0
    assert "segfault_or_abort" in capfd.readouterr().out
    assert main(["why", "--logs", str(path), "--signal", "nothing"]) == 2
    assert main(["why", "--logs", str(path) + "x"]) == 2


def test_a_message_behind_thousands_of_redrawn_bars_is_read():
    bars = b"\r".join(b"%dit [35:00,  4.31s/it]" % at for at in range(30_000))
    text = bars + b"slurmstepd: error: *** JOB 25 ON gr015 CANCELLED AT 2022-10-13T04:10:12 ***\n"
    stream = read_stream("slurm.out", [text])
    assert stream.lines[0].text.startswith("slurmstepd: error: *** JOB 25")


def test_an_exception_that_was_caught_gives_way_to_the_one_that_ended_the_process() -> None:
    printed = (
        'Traceback (most recent call last):\n  File "x.py", line 3, in f\n    g()\n'
        "FileNotFoundError: [Errno 2] No such file or directory: '/opt/cache.bin'\n"
        'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\n'
        "KeyError: 'lr'\n"
    )
    stream = read_stream("stderr", [printed.encode()])
    raised = [Raised("KeyError", "'lr'")]
    found = diagnose(Evidence(streams=[stream], exit_code=1, raised=raised))
    assert found.findings[0].cause == "code_exception"


def test_a_crash_in_native_code_says_where_python_was() -> None:
    log = (
        b"step 1\nFatal Python error: Segmentation fault\n\n"
        b"Current thread 0x00007fdc2026bb80 (most recent call first):\n"
        b'  File "/opt/venv/lib/python3.11/site-packages/x/ops.py", line 9 in run\n'
        b'  File "/app/train.py", line 12 in main\n'
    )
    (found,) = diagnose(Evidence(streams=[read_stream("stderr", [log])], signal=11)).findings
    assert (found.cause, found.text.rpartition(" at ")[2]) == ("segfault_or_abort", "train.py:12")
    assert "stack" in found.advice
