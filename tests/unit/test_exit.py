"""What the end of a task says by itself (diagnose/exit.py)."""

import signal

import pytest

from headway.diagnose.exit import Exit, explain_exit


def test_success_has_no_cause() -> None:
    assert explain_exit(Exit(0, None)) is None


@pytest.mark.parametrize(
    ("exc_type", "cause", "cls"),
    [
        ("ModuleNotFoundError", "import_error", "user"),
        ("ImportError", "import_error", "user"),
        ("FileNotFoundError", "missing_file", "user"),
        ("PermissionError", "permission_or_credentials", "user"),
        ("MemoryError", "host_oom", "resource"),
        ("builtins.KeyError", "code_exception", "user"),
        ("mypackage.errors.ImportError", "import_error", "user"),
    ],
)
def test_an_uncaught_exception_is_the_cause_with_its_own_words(
    exc_type: str, cause: str, cls: str
) -> None:
    exception = {"where": "main", "exc_type": exc_type, "message": "No module named 'x'"}
    finding = explain_exit(Exit(1, None, rank=2, exception=exception))
    assert finding is not None
    assert finding.as_cause() == {
        "cause": cause,
        "class": cls,
        "text": f"{exc_type}: No module named 'x'",
        "rank": 2,
    }


def test_an_exception_in_a_thread_does_not_explain_an_exit_code() -> None:
    finding = explain_exit(
        Exit(3, None, exception={"where": "thread", "exc_type": "KeyError", "message": "a"})
    )
    assert finding is not None and (finding.cause, finding.text) == (
        "unknown",
        "exited with code 3",
    )


@pytest.mark.parametrize(
    ("number", "cause", "cls"),
    [
        (signal.SIGKILL, "sigkill_unexplained", "system"),
        (signal.SIGSEGV, "segfault_or_abort", "user"),
        (signal.SIGABRT, "segfault_or_abort", "user"),
        (signal.SIGBUS, "segfault_or_abort", "user"),
        (signal.SIGILL, "illegal_instruction", "user"),
        (signal.SIGUSR1, "unknown", "unknown"),
    ],
)
def test_a_signal_is_named_also_when_a_shell_reports_it(number: int, cause: str, cls: str) -> None:
    finding = explain_exit(Exit(None, number))
    assert finding is not None and (finding.cause, finding.cls) == (cause, cls)
    if cause != "unknown":
        through_shell = explain_exit(Exit(128 + number, None))
        assert through_shell is not None and through_shell.cause == cause


def test_a_kill_with_the_oom_flag_is_out_of_memory() -> None:
    finding = explain_exit(Exit(None, 9, oom=True))
    assert finding is not None and (finding.cause, finding.cls) == ("host_oom", "resource")


@pytest.mark.parametrize("code", [126, 127])
def test_a_command_that_cannot_be_started_is_named(code: int) -> None:
    finding = explain_exit(Exit(code, None))
    assert (
        finding is not None and finding.cause == "command_not_found" and str(code) in finding.text
    )


def test_who_ended_it_goes_before_how_it_ended() -> None:
    limit, stop = (
        explain_exit(Exit(None, 9, reason="walltime")),
        explain_exit(Exit(None, 15, reason="stop")),
    )
    assert limit is not None and (limit.cause, limit.cls) == ("walltime", "resource")
    assert stop is not None and stop.cause == "cancelled"


def test_a_lost_exit_record_is_told_as_that_and_not_as_a_failure() -> None:
    finding = explain_exit(Exit(None, None, lost=True))
    assert finding is not None
    assert finding.as_cause() == {
        "cause": "agent_lost",
        "class": "system",
        "text": "its agent was killed; the exit code is not known",
        "rank": None,
    }
    attached = explain_exit(Exit(None, None, lost=True, attached=True))
    assert attached is not None and attached.cause == "unknown"


def test_an_endless_message_is_cut() -> None:
    finding = explain_exit(
        Exit(1, None, exception={"exc_type": "ValueError", "message": "x" * 10**6})
    )
    assert finding is not None and len(finding.text) <= 500


def test_a_program_that_could_not_start_for_want_of_room_says_that() -> None:
    found = explain_exit(
        Exit(126, None, 0, message="its code cannot be laid out: No space left on device")
    )
    assert found is not None and (found.cause, found.cls) == ("disk_full", "resource")
