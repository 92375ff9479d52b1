"""Settings that the program itself reads reach it: from a file, through its environment."""

from pathlib import Path

import pytest

from headway.model.errors import UsageError
from headway.settings import layers
from tests.driver import PYTHON, Hw

SCRIPT = """import logging, os
print(os.environ.get("HEADWAY_LOG_LEVEL"), os.environ.get("HEADWAY_FORWARD_EXCEPTIONS"))
logging.debug("deep inside")
1 / 0
"""


@pytest.fixture
def hw(home: Path, tmp_path: Path) -> Hw:
    return Hw(home, tmp_path)


def settings(hw: Hw, text: str) -> None:
    folder = Path(hw.env["XDG_CONFIG_HOME"]) / "headway"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(text)


@pytest.mark.cap(18, 41)
def test_the_level_of_records_and_the_forwarding_of_exceptions_are_settings(hw: Hw) -> None:
    settings(hw, "log_level: debug\nforward_exceptions: false\n")
    job = hw.submit(PYTHON, hw.script(SCRIPT))
    hw.wait_ended(job)
    assert hw("logs", job, "--stream", "stdout").stdout == b"DEBUG 0\n"
    found = hw.json("q", job)
    assert found["attempts"][0]["cause"]["cause"] != "python_exception"
    (process,) = found["attempts"][0]["tasks"][0]["processes"]
    assert process["exception"] is None, "what stderr says is read all the same"
    assert [one["text"] for one in _records(hw, job)] == ["deep inside"]


@pytest.mark.cap(18, 41)
def test_without_them_the_program_gets_no_variable_and_exceptions_are_told(hw: Hw) -> None:
    job = hw.submit(PYTHON, hw.script(SCRIPT))
    hw.wait_ended(job)
    assert hw("logs", job, "--stream", "stdout").stdout == b"None None\n"
    assert "ZeroDivisionError" in str(hw.json("q", job)["attempts"])
    assert _records(hw, job) == []


def _records(hw: Hw, job: str) -> list[dict[str, str]]:
    return list(hw.json("logs", job, "--stream", "log")["records"])


@pytest.mark.parametrize("level", ["loud", "-1", "1001", True])
def test_a_level_that_is_none_is_refused(level: object) -> None:
    with pytest.raises(UsageError, match="log_level"):
        layers.load(None, {"log_level": level})
