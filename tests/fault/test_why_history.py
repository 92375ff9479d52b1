"""What `hw why` knows from other jobs: lines that a good attempt printed as well, and the same failure before."""

from pathlib import Path

import pytest

from tests.driver import PYTHON, Hw

SCRIPT = """
import sys
print("OSError: cache is cold", file=sys.stderr)
if len(sys.argv) > 1:
    sys.exit(3)
"""


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    return Hw(home, tmp_path)


def test_a_usual_line_is_no_cause_and_the_same_failure_is_told_of(hw: Hw) -> None:
    script = hw.script(SCRIPT)
    hw("run", PYTHON, script, "bad")
    first = hw.json("ls")[0]["id"]
    assert hw.json("why", first)["findings"][0]["cause"] == "code_exception"
    hw("run", PYTHON, script)
    hw("run", PYTHON, script, "bad")
    hw("run", PYTHON, script, "bad")
    why = hw.json("why", hw.json("ls")[0]["id"])
    assert why["findings"][0]["cause"] == "unknown"
    assert why["seen_before"]["count"] == 2
    assert (
        f"before: {why['seen_before']['jobs'][0].rpartition('-')[2]}"
        in hw("why", why["id"]).stdout.decode()
    )
