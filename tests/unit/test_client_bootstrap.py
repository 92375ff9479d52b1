"""The bootstrap: in every Python process of a job, without being noticed, whatever the environment
is like.
"""

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import headway
from tests import streams

PACKAGE = Path(headway.__file__).parent
BOOTSTRAP = PACKAGE / "client" / "bootstrap"
ALONE = [sys.executable, "-S"]  # no site-packages: `headway` is not installed there


class Job:
    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "spool"
        self.folder.mkdir()
        (self.folder / "task.json").write_text('{"version": 1}')
        self.cwd = tmp_path / "work"
        self.cwd.mkdir()
        self.env = dict(os.environ) | {
            "HEADWAY_SPOOL": str(self.folder),
            "PYTHONPATH": str(BOOTSTRAP),
        }
        for name in ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"):
            self.env.pop(name, None)

    def __call__(self, code: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Python without site-packages, which loads sitecustomize all the same when told to by
        hand.
        """
        start = "import site; site.execsitecustomize()\n" if "-S" in words or not words else ""
        return subprocess.run(
            [*(words or ALONE), "-c", start + code], cwd=self.cwd, env=self.env | env, capture_output=True, text=True,
            timeout=60,
        )  # fmt: skip

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def told(self, kind: str) -> list[dict[str, Any]]:
        return streams.facts(self.folder, kind)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_it_is_plain_enough_for_the_oldest_python() -> None:
    """2.7 reads `sitecustomize`, too: no annotation, no f-string, no keyword that it lacks."""
    text = (BOOTSTRAP / "sitecustomize.py").read_text()
    tree = ast.parse(text)
    newer = (
        ast.JoinedStr,
        ast.AnnAssign,
        ast.NamedExpr,
        ast.Nonlocal,
        ast.Match,
        ast.AsyncFunctionDef,
    )
    assert not [node for node in ast.walk(tree) if isinstance(node, newer)]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert node.returns is None and not node.args.kwonlyargs and not node.args.posonlyargs
            assert all(argument.annotation is None for argument in node.args.args)


def test_headway_is_importable_where_it_is_not_installed(job: Job) -> None:
    done = job("import headway as hw, sys; hw.log({'x': 1.0}); print(hw.__file__)")
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()) == PACKAGE / "__init__.py"
    assert [p.value for p in streams.points(job.folder)] == [1.0]


def test_an_installed_headway_goes_first(job: Job) -> None:
    (job.cwd / "headway").mkdir()
    (job.cwd / "headway" / "__init__.py").write_text("mine = True")
    done = job("import headway; print(headway.mine)\nraise ValueError('x')")
    assert done.stdout == "True\n" and done.stderr.endswith("ValueError: x\n")


def test_the_package_may_lie_elsewhere(job: Job, tmp_path: Path) -> None:
    other = tmp_path / "other" / "headway"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("where = 'elsewhere'")
    for package in (other, other.parent):
        assert (
            job("import headway; print(headway.where)", HEADWAY_PACKAGE=str(package)).stdout
            == "elsewhere\n"
        )


def test_an_unmodified_script_that_fails_is_told_of(job: Job) -> None:
    done = job("def f():\n    raise ValueError('bad')\nf()")
    assert (
        done.returncode == 1
        and done.stderr.endswith("ValueError: bad\n")
        and "sitecustomize" not in done.stderr
    )
    assert [(t["where"], t["message"]) for t in job.told("exception")] == [("main", "bad")]
    assert len(job.told("hello")) == 1 and job.told("bye")[0]["exit_code"] == 1


def test_an_exception_in_a_thread_of_an_unmodified_script_is_told(job: Job) -> None:
    done = job(
        "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='w'); t.start(); t.join()"
    )
    assert done.returncode == 0 and "ZeroDivisionError" in done.stderr
    assert [(t["where"], t["thread"]) for t in job.told("exception")] == [("thread", "w")]


def test_a_program_that_replaces_the_hook_is_still_told_of(job: Job) -> None:
    job("import sys; sys.excepthook = lambda *a: print('mine')\n1 / 0")
    assert [t["exc_type"] for t in job.told("exception")] == ["ZeroDivisionError"]


def test_an_exception_is_told_once_when_the_client_is_there_too(job: Job) -> None:
    job("import headway as hw; hw.init()\n1 / 0")
    assert len(job.told("exception")) == 1


def test_ctrl_c_still_kills_by_the_signal(job: Job) -> None:
    done = job("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    assert (
        done.returncode == -signal.SIGINT
        and job.told("exception")[0]["exc_type"] == "KeyboardInterrupt"
    )


@pytest.mark.parametrize(
    "code",
    ["pass", "import sys; sys.exit(3)", "raise SystemExit", "print(1)", "import os; os._exit(2)"],
)
def test_a_helper_that_neither_logs_nor_fails_leaves_no_file(job: Job, code: str) -> None:
    job(code)
    assert job.files() == ["task.json"]


def test_exceptions_are_left_alone_when_asked_for(job: Job) -> None:
    """41."""
    assert job("1 / 0", HEADWAY_FORWARD_EXCEPTIONS="0").returncode == 1
    assert job("1 / 0", HEADWAY_DISABLED="1").returncode == 1
    assert job.files() == ["task.json"]


def test_a_task_that_is_gone_is_not_made_into_a_job(job: Job) -> None:
    (job.folder / "task.json").unlink()
    done = job("1 / 0")
    assert done.returncode == 1 and "ZeroDivisionError" in done.stderr and job.files() == []


def test_output_is_line_buffered_so_a_killed_program_loses_no_line(job: Job) -> None:
    done = job("import os, signal; print('before'); os.kill(os.getpid(), signal.SIGKILL)")
    assert done.returncode == -signal.SIGKILL and done.stdout == "before\n"


def test_the_sitecustomize_behind_it_runs_too(job: Job) -> None:
    behind = job.cwd / "behind"
    behind.mkdir()
    (behind / "sitecustomize.py").write_text("import builtins; builtins.behind = __file__")
    done = job(
        "import sitecustomize; print(behind, sitecustomize.__file__)",
        PYTHONPATH=f"{BOOTSTRAP}:{behind}",
    )
    assert done.stdout.split() == [str(behind / "sitecustomize.py")] * 2, done.stderr
    failing = behind / "sitecustomize.py"
    failing.write_text("raise RuntimeError('own trouble')")
    done = job("print('runs')", sys.executable, PYTHONPATH=f"{BOOTSTRAP}:{behind}")
    assert done.stdout == "runs\n" and "own trouble" in done.stderr  # as Python says it without us


def test_the_programs_path_is_as_without_us(job: Job) -> None:
    assert str(BOOTSTRAP) not in job("import sys; print(sys.path)").stdout


def test_closed_output_and_odd_values_do_no_harm(job: Job) -> None:
    for env in (
        {"HEADWAY_SPOOL": "/nowhere/\x01"},
        {"HEADWAY_PACKAGE": "/nowhere"},
        {"HEADWAY_SPOOL": ""},
    ):
        done = job("print('runs')\n1 / 0", **env)
        assert done.stdout == "runs\n" and done.stderr.endswith(
            "ZeroDivisionError: division by zero\n"
        )
    done = subprocess.run(
        ["sh", "-c", f'exec "{sys.executable}" -c "import sys; sys.exit(7)" >&- 2>&-'],
        env=job.env,
        timeout=60,
    )
    assert done.returncode == 7


def test_it_imports_nothing_that_python_has_not_loaded(job: Job) -> None:
    code = "import sys; print(sorted(sys.modules))"
    plain = set(ast.literal_eval(job(code, HEADWAY_DISABLED="1").stdout))
    with_us = set(ast.literal_eval(job(code).stdout))
    assert with_us - plain <= {"_thread", "atexit", "faulthandler"}
