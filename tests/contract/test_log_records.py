"""Records of `logging` that nobody printed stand between the lines of the output; nothing is told
twice.
"""

from pathlib import Path

import pytest

from tests.driver import PYTHON, Hw

SCRIPT = """\
import logging, time
log = logging.getLogger("train")
print("one", flush=True); time.sleep(0.3)
log.info("kept quiet %d", 1); time.sleep(0.3)
print("two", flush=True)
log.warning("printed by logging itself")
"""


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    return Hw(home, tmp_path)


def test_a_record_that_nobody_printed_is_told_where_people_look_and_once(hw: Hw) -> None:
    done = hw("run", PYTHON, hw.script(SCRIPT))
    assert done.stdout == b"one\ntwo\n"
    assert done.stderr.count(b"INFO train: kept quiet 1") == 1
    assert done.stderr.count(b"printed by logging itself") == 1
    (job,) = hw.json("ls")
    lines = [line.split("│ ")[1] for line in hw("logs", job["id"]).stdout.decode().splitlines()]
    assert lines[:3] == ["one", "INFO train: kept quiet 1", "two"]
    assert sorted(lines[3:]) == ["printed by logging itself"]
    page = hw("q", job["id"]).stdout
    assert page.count(b"INFO train: kept quiet 1") == 1
    assert hw("logs", job["id"], "--stream", "stdout").stdout == b"one\ntwo\n"
    followed = hw("logs", "-f", job["id"]).stdout
    assert followed.count(b"kept quiet 1") == 1
