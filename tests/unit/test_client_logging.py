"""`logging` in a job: records are kept, and the program prints what it would print without us (18,
19).
"""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.model.limits import LOG_TEXT_CHARS_MAX
from headway.model.record import FACT
from headway.wire import frame
from tests import streams

BOOTSTRAP = Path(headway.__file__).parent / "client" / "bootstrap"


class Job:
    """Runs scripts in a job and without one."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder, self.tmp_path = tmp_path / "spool", tmp_path
        self.folder.mkdir()
        (self.folder / "task.json").write_text('{"version": 1}')

    def __call__(
        self, code: str, *, plain: bool = False, **env: str
    ) -> subprocess.CompletedProcess[str]:
        script = self.tmp_path / "script.py"
        script.write_text(code)
        ours = {} if plain else {"HEADWAY_SPOOL": str(self.folder), "PYTHONPATH": str(BOOTSTRAP)}
        return subprocess.run(
            [sys.executable, str(script)],
            env=dict(os.environ) | ours | env,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def records(self) -> list[dict[str, Any]]:
        return records(self.folder)

    def texts(self) -> list[str]:
        return [record["text"] for record in self.records()]


def records(folder: Path) -> list[dict[str, Any]]:
    found = []
    for stream in streams.streams(folder, "logs"):
        found += [
            frame.decode_json(p)
            for kind, p in streams.frames_of(folder, stream.name)
            if kind == FACT
        ]
    return sorted(found, key=lambda record: record["time_ns"])


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_records_of_an_unmodified_script_are_kept_with_where_they_come_from(job: Job) -> None:
    done = job(
        "import logging\ndef f():\n    logging.getLogger('a.b').info('x is %d', 3)\nf()",
        RANK="2",
        WORLD_SIZE="4",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    record = job.records()[0]
    assert record["text"] == "x is 3" and record["level"] == "INFO" and record["levelno"] == 20
    assert (record["logger"], record["func"], record["line"]) == ("a.b", "f", 3)
    assert record["file"] == str(job.tmp_path / "script.py")
    assert (record["rank"], record["process"], record["thread"]) == (2, "MainProcess", "MainThread")
    assert record["printed"] is False and record["cut"] is False and "table" not in record


SAME = [
    "logging.info('not shown'); logging.warning('shown')",
    "logging.getLogger('x').info('not shown'); logging.getLogger('x').warning('by the last resort')",
    "logging.basicConfig(); logging.info('not shown'); logging.error('shown')",
    "logging.basicConfig(level=logging.DEBUG, format='%(levelname)s %(lineno)d %(funcName)s %(message)s')\n"
    "logging.debug('d'); logging.info('i %s', 1)",
    "logging.basicConfig(level='INFO'); logging.info('%d', 'a format that does not fit')",
    "log = logging.getLogger('x'); log.setLevel('ERROR'); log.addHandler(logging.StreamHandler(sys.stdout))\n"
    "log.warning('no'); log.error('yes')",
    "logging.disable(logging.ERROR); logging.error('no'); logging.critical('yes')",
    "print(logging.getLogger('x').isEnabledFor(10), logging.root.level, logging.root.handlers, logging.lastResort)",
    "r = logging.makeLogRecord({'msg': 'by hand', 'levelno': 20, 'levelname': 'INFO'})\n"
    "logging.basicConfig(); logging.root.handle(r)",
    "logging.warning('dict %(a)s', {'a': 1}); logging.warning('100% sure'); logging.warning('percent %%', 1)",
]


@pytest.mark.parametrize("code", SAME)
def test_the_program_prints_what_it_would_print_without_us(job: Job, code: str) -> None:
    code = "import logging, sys\nlogging.raiseExceptions = False\n" + code
    plain, ours = job(code, plain=True), job(code)
    assert (ours.stdout, ours.stderr, ours.returncode) == (
        plain.stdout,
        plain.stderr,
        plain.returncode,
    )


def test_several_values_in_one_call(job: Job) -> None:
    """`logging.info("a", "b")`, which plain Python answers with a logging error."""
    done = job(
        "import logging\nlogging.basicConfig(level='INFO')\nlogging.info('a', 'b', [1, 2])\n"
        "logging.info('one', {'k': 1})\nlogging.info(3, None)\nlogging.info('%d of', 'not a number', 2)\n"
        "class Bad:\n    def __str__(self): raise KeyError\nlogging.root.setLevel('CRITICAL')\n"
        "logging.critical('bad', Bad())"
    )
    assert job.texts()[:4] == ["a b [1, 2]", "one {'k': 1}", "3 None", "%d of not a number 2"]
    assert (
        job.texts()[4] == "bad <__main__.Bad that cannot be shown: KeyError>"
        and "INFO:root:a b [1, 2]" in done.stderr
    )


def test_printed_says_whether_the_program_shows_it(job: Job) -> None:
    job(
        "import logging, sys, io\nlogging.warning('last resort')\nlogging.info('nobody')\n"
        "log = logging.getLogger('f'); log.propagate = False; log.setLevel('INFO')\n"
        "log.addHandler(logging.StreamHandler(io.StringIO())); log.info('file')\n"
        "log.addHandler(logging.StreamHandler(sys.stdout)); log.info('stdout')"
    )
    assert [(r["text"], r["printed"]) for r in job.records()] == [
        ("last resort", True), ("nobody", False), ("file", False), ("stdout", True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("level", "kept"),
    [("", "iwe"), ("DEBUG", "diwe"), ("warning", "we"), ("40", "e"), ("nonsense", "iwe")],
)
def test_the_level_can_be_set(job: Job, level: str, kept: str) -> None:
    job("import logging\nlogging.debug('d'); logging.info('i'); logging.warning('w'); logging.error('e')",
        HEADWAY_LOG_LEVEL=level)  # fmt: skip
    assert "".join(job.texts()) == kept


def test_a_level_that_the_program_has_set_counts(job: Job) -> None:
    job(
        "import logging\nlogging.getLogger('quiet').setLevel('ERROR')\nlogging.getLogger('quiet.below').info('no')\n"
        "logging.getLogger('off').disabled = True\nlogging.getLogger('off').info('no')\nlogging.info('yes')"
    )
    assert job.texts() == ["yes"]


def test_a_table_of_rich_is_drawn_and_kept_as_cells(job: Job) -> None:
    pytest.importorskip("rich")
    job(
        "import logging\nfrom rich.table import Table\nt = Table('name', 'value')\n"
        "t.add_row('[bold red]a[/]', '1'); t.add_row('b', '2')\nlogging.info('results', t)\nlogging.info('x %s', t)\n"
        "big = Table('n')\nfor i in range(1000): big.add_row(str(i))\nlogging.info(big)"
    )
    first, second, third = job.records()
    assert (
        first["text"].startswith("results\n┏━")
        and "│ a " in first["text"]
        and "\x1b" not in first["text"]
    )
    assert first["table"] == {"columns": ["name", "value"], "rows": [["a", "1"], ["b", "2"]]}
    assert second["text"].startswith("x \n┏━")
    assert third["text"].endswith("… and 800 more rows") and len(third["table"]["rows"]) == 200


def test_rich_is_not_imported_for_other_objects(job: Job) -> None:
    done = job(
        "import logging, sys\nlogging.info('a', object())\nprint([m for m in sys.modules if m.startswith('rich')])"
    )
    assert done.stdout == "[]\n" and len(job.records()) == 1


def test_a_large_record_is_cut_with_a_mark(job: Job) -> None:
    job("import logging\nlogging.info('x' * 10**6)\nlogging.info('a', list(range(10**5)))")
    first, second = job.records()
    assert (
        first["cut"]
        and len(first["text"]) < LOG_TEXT_CHARS_MAX + 100
        and "characters cut …" in first["text"]
    )
    assert f"… {10**6 - LOG_TEXT_CHARS_MAX} characters cut …" in first["text"]
    assert "… and 99000 more" in second["text"]


def test_an_exception_is_kept_with_its_traceback(job: Job) -> None:
    job(
        "import logging\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    logging.exception('skipped')"
    )
    text = job.texts()[0]
    assert text.startswith("skipped\nTraceback") and text.endswith(
        "ZeroDivisionError: division by zero"
    )


def test_secrets_are_masked(job: Job) -> None:
    """Also one that is set late."""
    job(
        "import logging, os\nlogging.info('key %s', os.environ['API_TOKEN'])\n"
        "os.environ['DB_PASSWORD'] = 'swordfish-9'\nlogging.info('now swordfish-9')", API_TOKEN="hunter2-hunter2",
    )  # fmt: skip
    assert job.texts() == ["key ********", "now ********"]
    assert all(b"hunter2" not in path.read_bytes() for path in job.folder.iterdir())


def test_records_that_belong_together(job: Job) -> None:
    """Threads and child processes inherit the id."""
    code = (
        "import logging, subprocess, sys, threading, headway as hw\nlogging.info('before')\n"
        "with hw.correlation('r-7'):\n    logging.info('inside')\n"
        "    t = threading.Thread(target=lambda: logging.info('thread')); t.start(); t.join()\n"
        "    subprocess.run([sys.executable, '-c', 'import logging; logging.info(\"child\")'])\n"
        "logging.info('after')"
    )
    assert job(code).returncode == 0
    assert [(r["text"], r.get("correlation")) for r in job.records()] == [
        ("before", None), ("inside", "r-7"), ("thread", "r-7"), ("child", "r-7"), ("after", None),
    ]  # fmt: skip


def test_the_last_record_before_a_kill_is_there(job: Job) -> None:
    """P2."""
    done = job("import logging, os\nlogging.info('last words')\nos.kill(os.getpid(), 9)")
    assert done.returncode == -signal.SIGKILL and job.texts() == ["last words"]


def test_a_forked_child_has_a_stream_of_its_own(job: Job) -> None:
    job(
        "import logging, os\nlogging.info('parent')\n"
        "if os.fork() == 0:\n    logging.info('child')\n    os._exit(0)\nos.wait()"
    )
    assert job.texts() == ["parent", "child"]
    assert len({r["pid"] for r in job.records()}) == 2 == len(streams.streams(job.folder, "logs"))


def test_logging_while_logging_has_an_end(job: Job) -> None:
    """An object that logs when it is shown, a handler that logs, and a signal handler that logs."""
    code = (
        "import logging, signal\nclass Talks:\n    def __str__(self):\n        logging.info('shown'); return 'talks'\n"
        "logging.info(Talks())\n"
        "signal.signal(signal.SIGALRM, lambda *_: logging.info('alarm'))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\n"
        "for i in range(2000): logging.info('n %d', i)\nsignal.setitimer(signal.ITIMER_REAL, 0)\nprint('done')"
    )
    assert job(code).stdout == "done\n"
    texts = job.texts()
    assert "talks" in texts and [t for t in texts if t.startswith("n ")] == [
        f"n {i}" for i in range(2000)
    ]


def test_a_full_segment_is_followed_by_the_next(job: Job) -> None:
    job(
        "import headway.client.logging_capture as logs, logging\nlogs.SEGMENT_BYTES_MAX = 2000\n"
        "for i in range(50): logging.info('n %d', i)"
    )
    assert len(streams.streams(job.folder, "logs")) > 3
    assert job.texts() == [f"n {i}" for i in range(50)]


def test_a_full_disk_is_counted_and_told(job: Job) -> None:
    """F7, P5: the program goes on, and what is missing is known."""
    code = f"""
import logging, headway.client.logging_capture as logs
from headway.client import api, backoff
from headway.spool.writer import StreamWriter
backoff.BACKOFF_FIRST_S = 0.0
real, calls = StreamWriter.append, []
def append(self, frames):
    calls.append(self.name)
    if self.name.startswith("logs-") and 5 <= len(calls) < 9:
        raise OSError({errno.ENOSPC}, "No space left on device")
    real(self, frames)
StreamWriter.append = append
for i in range(20): logging.info("n %d", i)
"""
    done = job(code)
    assert done.returncode == 0 and done.stderr.count("headway:") == 1
    gap = streams.facts(job.folder, "gap")[0]
    assert (
        len(job.texts()) + gap["records"] == 20
        and gap["records"] > 0
        and gap["reason"] == "No space left on device"
    )


def test_outside_a_job_logging_makes_none(tmp_path: Path) -> None:
    code = "import headway as hw, logging\nhw.correlation('x')\nlogging.info('nothing')"
    env = dict(os.environ) | {"HEADWAY_HOME": str(tmp_path / "home")}
    env.pop("HEADWAY_SPOOL", None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "") and not (tmp_path / "home").exists()


def test_importing_logging_loads_nothing_of_ours(job: Job) -> None:
    """The client comes with the first record, not with the import, which nearly every helper
    process does.
    """
    code = (
        "import logging, sys, json\nlogging.debug('x')\n"
        "print(json.dumps([m for m in sys.modules if m.split('.')[0] == 'headway']))"
    )
    assert json.loads(job(code).stdout) == []


@pytest.mark.parametrize(
    "code",
    ["import logging\nhw.init()", "hw.init()\nimport logging", "hw.log({'x': 1}); import logging"],
)
def test_without_the_bootstrap_the_first_call_sees_to_it(job: Job, code: str) -> None:
    """A plain `python train.py`: `logging` may have been imported before or after."""
    assert (
        job(f"import headway as hw\n{code}\nlogging.info('seen %d', 1)", PYTHONPATH="").returncode
        == 0
    )
    assert job.texts() == ["seen 1"] and job.records()[0]["line"] == 4 - code.startswith("hw.log")


def test_a_module_of_the_program_called_logging_is_left_alone(job: Job) -> None:
    (job.tmp_path / "logging.py").write_text("mine = True")
    assert job("import logging\nprint(logging.mine)").stdout == "True\n"


# -- last words

SEGFAULT = "import ctypes\nctypes.string_at(0)"


def test_a_fatal_signal_leaves_a_traceback_on_stderr(job: Job) -> None:
    done = job(SEGFAULT)
    assert (
        done.returncode == -signal.SIGSEGV
        and "Fatal Python error: Segmentation fault" in done.stderr
    )
    assert "script.py" in done.stderr


def test_forwarding_can_be_switched_off(job: Job) -> None:
    assert "Fatal Python error" not in job(SEGFAULT, HEADWAY_FORWARD_EXCEPTIONS="0").stderr
    job("1 / 0", HEADWAY_FORWARD_EXCEPTIONS="0")
    assert not streams.facts(job.folder, "exception")


def test_a_program_that_sets_up_faulthandler_keeps_its_own(job: Job) -> None:
    code = f"import faulthandler\nout = open({str(job.tmp_path / 'own')!r}, 'w')\nfaulthandler.enable(out)\n"
    done = job(code + "import headway as hw\nhw.log({'x': 1})\n" + SEGFAULT)
    assert (
        "Fatal Python error" not in done.stderr
        and "Segmentation" in (job.tmp_path / "own").read_text()
    )


def test_a_secret_that_is_replaced_or_added_is_masked_in_the_next_record(job: Job) -> None:
    """Secrets are looked for anew when a variable has changed, not for every record."""
    job(
        "import logging, os\n"
        "os.environ['MY_TOKEN'] = 'first-secret-value'\n"
        "logging.info('a %s', 'first-secret-value')\n"
        "os.environ['MY_TOKEN'] = 'second-secret-value'\n"
        "logging.info('b %s', 'second-secret-value')\n"
        "os.environ.update(OTHER_PASSWORD='third-secret-value')\n"
        "logging.info('c third-secret-value')\n"
    )
    assert job.texts() == ["a ********", "b ********", "c ********"]


def test_an_ordinary_record_says_all_that_an_odd_one_says(job: Job) -> None:
    """Both are made by code of their own."""
    job(
        "import logging\n"
        "class Odd:\n"
        "    def __str__(self): return '7'\n"
        "for value in (7, Odd()): logging.getLogger('x.y').warning('n %s é', value)\n"
    )
    plain, odd = ({k: v for k, v in record.items() if k != "time_ns"} for record in job.records())
    assert plain == odd and plain["text"] == "n 7 é"


def test_a_forked_child_signs_its_own_records(job: Job) -> None:
    job(
        "import logging, os\n"
        "def say(): logging.info('who')\n"
        "say()\n"
        "child = os.fork()\n"
        "say()\n"
        "if child: os.waitpid(child, 0)\n"
    )
    assert len({record["pid"] for record in job.records()}) == 2


EARLY = (
    "logging.getLogger('x').info('early %d', 1)\n"
    "logging.getLogger('x').warning('seen')\n"
    "logging.getLogger('y').setLevel(logging.ERROR)\n"
    "logging.getLogger('y').info('unwanted')\n"
    "logging.root.handle(logging.makeLogRecord({'msg': 'handed on', 'levelno': 10}))\n"
)


@pytest.mark.parametrize(
    "imports", ["import logging\nimport headway\n", "import headway\nimport logging\n"]
)
def test_a_plain_script_keeps_its_records_from_the_import_on(tmp_path: Path, imports: str) -> None:
    """They are told with the first call; what the program prints is as without us."""
    script = tmp_path / "script.py"
    script.write_text(
        f"{imports}{EARLY}"
        "from headway.client import early_records\n"
        "print([record.getMessage() for _, record, _ in early_records.take()])\n"
        "logging.getLogger('x').info('no longer kept')\n"
        "print(early_records.take(), logging.Logger.callHandlers.__module__)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "['early 1', 'seen']\n[] logging\n"
    assert done.stderr == "seen\n"
