"""Uncaught exceptions: told once, masked, with the traceback as Python prints it; the program fails
as before (41).
"""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.client.exception import describe
from headway.model.limits import FRAME_BYTES_MAX, MESSAGE_CHARS_MAX, TRACEBACK_CHARS_MAX
from tests import streams
from tests.client_bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "spool", environ={"MY_TOKEN": "tok-12345678"})
    yield bench
    bench.run.end(None)


def caught(code: str) -> BaseException:
    try:
        exec(compile(textwrap.dedent(code), "<string>", "exec"), {})
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def plain(error: BaseException) -> dict[str, Any]:
    return describe("main", error, error.__traceback__, None, lambda text: text)


def test_chained_exceptions_are_printed_as_python_does() -> None:
    found = plain(
        caught("try:\n    {}['x']\nexcept KeyError as e:\n    raise ValueError('bad batch') from e")
    )
    assert found["exc_type"] == "ValueError" and found["message"] == "bad batch"
    assert "KeyError: 'x'" in found["traceback"] and "direct cause" in found["traceback"]
    assert found["traceback"].endswith("ValueError: bad batch\n") and found["line"] == 4


def test_a_group_of_exceptions_is_printed_whole() -> None:
    found = plain(caught("raise ExceptionGroup('several', [ValueError('a'), TypeError('b')])"))
    assert "ValueError: a" in found["traceback"] and "TypeError: b" in found["traceback"]


def test_the_place_is_in_the_programs_own_code_not_in_a_library(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import json\n\ndef load():\n    return json.loads('{')\n\nload()\n")
    namespace: dict[str, Any] = {}
    try:
        exec(compile(script.read_text(), str(script), "exec"), namespace)
    except ValueError as error:
        found = plain(error)
    assert (found["file"], found["line"], found["source"]) == (
        str(script),
        4,
        "return json.loads('{')",
    )
    assert found["exc_type"] == "json.decoder.JSONDecodeError"


def test_a_syntax_error_is_placed_where_it_is() -> None:
    try:
        compile("x = = 1", "model.py", "exec")
    except SyntaxError as error:
        found = plain(error)
    assert (found["file"], found["line"]) == ("model.py", 1)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def test_an_exception_that_cannot_be_printed_is_still_told() -> None:
    found = plain(Unprintable())
    assert (
        found["exc_type"].endswith("Unprintable")
        and found["message"] == "<the exception has no text>"
    )


def test_endless_recursion_and_huge_messages_are_bounded(bench: Bench) -> None:
    error = caught("def f(n):\n    return f(n + 1) + len('x' * n)\nf(0)")
    found = plain(error)
    assert found["exc_type"] == "RecursionError" and len(found["traceback"]) <= TRACEBACK_CHARS_MAX
    found = plain(ValueError("😀" * 10**6))
    assert (
        len(found["message"]) <= MESSAGE_CHARS_MAX
        and len(found["traceback"]) <= TRACEBACK_CHARS_MAX
    )
    bench.run.exception("main", ValueError("😀" * 10**6))
    (told,) = streams.facts(bench.folder, "exception")
    assert (
        told["message"].startswith("😀")
        and os.path.getsize(bench.folder / streams.streams(bench.folder, "facts")[0].name)
        < FRAME_BYTES_MAX * 1.1
    )


def test_secrets_are_masked_also_where_the_text_is_cut(bench: Bench) -> None:
    """52."""
    where = MESSAGE_CHARS_MAX // 4
    for at in range(where - 12, where + 2, 3):
        bench.run.exception(
            "thread", ValueError("x" * at + "tok-12345678" + "y" * MESSAGE_CHARS_MAX)
        )
    bench.run.exception("main", ValueError("lone \ud800 and tok-12345678"))
    raw = b"".join(
        (bench.folder / s.name).read_bytes() for s in streams.streams(bench.folder, "facts")
    )
    assert b"tok-1" not in raw and b"12345678" not in raw and b"\\ud800" not in raw
    assert len(streams.facts(bench.folder, "exception")) >= 5


def test_an_exception_is_told_once_whoever_reports_it(bench: Bench) -> None:
    error = ValueError("x")
    for _ in range(3):
        bench.run.exception("main", error)
    assert len(streams.facts(bench.folder, "exception")) == 1


def test_exceptions_of_threads_do_not_fill_the_disk(bench: Bench) -> None:
    """P7."""
    for i in range(500):
        bench.run.exception("thread", ValueError(str(i)))
    bench.run.exception("main", ValueError("the one that counts"))
    told = streams.facts(bench.folder, "exception")
    assert len(told) < 100 and told[-1]["message"] == "the one that counts"


# -- in programs of their own


class Program:
    """Runs scripts under a task, the way `hw run` would start them, with or without the bootstrap."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "spool"
        self.folder.mkdir()
        (self.folder / "task.json").write_text('{"version": 1}')
        self.script = tmp_path / "train.py"
        self.env = dict(os.environ) | {"HEADWAY_SPOOL": str(self.folder)}

    def __call__(self, code: str, **env: str) -> subprocess.CompletedProcess[str]:
        self.script.write_text(textwrap.dedent(code))
        return subprocess.run(
            [sys.executable, str(self.script)],
            env=self.env | env,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def told(self, kind: str = "exception") -> list[dict[str, Any]]:
        return streams.facts(self.folder, kind)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_the_exception_that_ends_a_program_is_told_and_printed_as_ever(program: Program) -> None:
    done = program(
        "import headway as hw\nhw.log({'x': 1})\ndef f():\n    raise ValueError('bad batch')\nf()\n"
    )
    assert done.returncode == 1 and done.stderr.endswith("ValueError: bad batch\n")
    (told,) = program.told()
    assert (told["where"], told["exc_type"], told["message"], told["line"]) == (
        "main",
        "ValueError",
        "bad batch",
        4,
    )
    assert told["file"] == str(program.script) and told["source"] == "raise ValueError('bad batch')"
    assert told["traceback"] == done.stderr
    assert [f["exit_code"] for f in program.told("bye")] == [1]
    assert program.told("counters")[0]["written"] == 1


def test_a_programs_own_hook_is_called_after_ours(program: Program) -> None:
    done = program("""
        import sys
        sys.excepthook = lambda *a: print("own hook:", a[1])
        import headway as hw
        hw.init()
        1 / 0
    """)
    assert (
        done.stdout == "own hook: division by zero\n"
        and done.stderr == ""
        and len(program.told()) == 1
    )


def test_an_exception_is_told_even_when_the_program_has_replaced_the_hook(program: Program) -> None:
    """As rich.traceback.install() does, without calling the one before."""
    done = program("""
        import sys, headway as hw
        hw.init()
        sys.excepthook = lambda *a: print("replaced:", a[1])
        1 / 0
    """)
    assert done.stdout == "replaced: division by zero\n"
    assert [t["exc_type"] for t in program.told()] == ["ZeroDivisionError"]
    assert program.told("bye")[0]["exit_code"] == 1


@pytest.mark.parametrize(
    "early", [True, False], ids=["threading imported before", "threading imported after"]
)
def test_exceptions_in_threads_and_destructors_are_told(program: Program, early: bool) -> None:
    done = program(f"""
        {"import threading" if early else ""}
        import headway as hw
        hw.init()
        import threading
        def work(): raise KeyError("in a thread")
        thread = threading.Thread(target=work, name="loader-3"); thread.start(); thread.join()
        class Bad:
            def __del__(self): raise OSError("in a destructor")
        Bad()
        def leave(): raise SystemExit(3)
        thread = threading.Thread(target=leave); thread.start(); thread.join()
    """)
    assert done.returncode == 0, done.stderr
    assert "in a thread" in done.stderr and "in a destructor" in done.stderr
    assert [(t["where"], t["exc_type"], t["thread"]) for t in program.told()] == [
        ("thread", "KeyError", "loader-3"), ("unraisable", "OSError", None),
    ]  # fmt: skip
    assert program.told("bye")[0]["exit_code"] == 0


def test_ctrl_c_is_told(program: Program) -> None:
    done = program(
        "import os, signal, headway as hw\nhw.init()\nos.kill(os.getpid(), signal.SIGINT)\n"
    )
    assert done.returncode == -signal.SIGINT
    assert (
        program.told()[0]["exc_type"] == "KeyboardInterrupt"
        and program.told("bye")[0]["exit_code"] == 130
    )


def test_forwarding_can_be_switched_off_and_nothing_else_changes(program: Program) -> None:
    """41."""
    done = program(
        "import headway as hw\nhw.log({'x': 1})\n1 / 0\n", HEADWAY_FORWARD_EXCEPTIONS="0"
    )
    assert done.returncode == 1 and "ZeroDivisionError" in done.stderr
    assert program.told() == [] and program.told("bye")[0]["exit_code"] == 1


@pytest.mark.parametrize(
    ("code", "exit_code", "known"),
    [
        ("pass", 0, 0), ("sys.exit()", 0, 0), ("sys.exit(3)", 3, 3), ("sys.exit('words')", 1, 1),
        ("sys.exit(True)", 1, 1), ("sys.exit(259)", 3, 3), ("raise SystemExit(4)", 4, None), ("exit(5)", 5, 5),
        ("quit()", 0, 0), ("1 / 0", 1, 1), ("hw.finish(); hw.log({'x': 2}); hw.finish(); sys.exit(6)", 6, 6),
        ("try:\n    sys.exit(3)\nexcept SystemExit:\n    pass", 0, 0),
        ("import argparse; argparse.ArgumentParser().parse_args(['--no'])", 2, 2),
        ("import threading; t = threading.Thread(target=lambda: sys.exit(9)); t.start(); t.join()", 0, 0),
    ],
)  # fmt: skip
def test_the_exit_code_of_an_attached_program_is_known_or_said_to_be_unknown(
    tmp_path: Path, code: str, exit_code: int, known: int | None
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nimport headway.home.launch as launch\nlaunch.agent_argv = lambda *a: ['true']\n"
        f"import headway as hw\nhw.log({{'x': 1}})\n{code}\n"
    )
    env = dict(os.environ) | {"HEADWAY_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == exit_code, done.stderr
    (folder,) = (tmp_path / "home" / "spool").iterdir()
    assert [f["exit_code"] for f in streams.facts(folder, "bye")] == [known]


def test_the_exception_stands_in_the_error_file_of_torchrun(tmp_path: Path) -> None:
    file = tmp_path / "error.json"
    bench = Bench(tmp_path / "spool", environ={"TORCHELASTIC_ERROR_FILE": str(file)})
    bench.run.exception("main", caught("raise KeyError('lr')"))
    told = json.loads(file.read_text())["message"]
    assert told["message"] == "KeyError: 'lr'"
    assert (
        "raise KeyError" in told["extraInfo"]["py_callstack"] or told["extraInfo"]["py_callstack"]
    )
    bench.run.exception("main", caught("raise ValueError('later')"))
    assert "lr" in file.read_text()
    bench.run.end(None)


def test_an_error_file_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path / "spool", environ={"TORCHELASTIC_ERROR_FILE": str(tmp_path / "no" / "e")}
    )
    bench.run.exception("main", caught("raise KeyError('lr')"))
    assert bench.run.exit_code == 1
    bench.run.end(None)
