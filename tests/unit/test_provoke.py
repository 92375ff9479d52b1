"""A sample of really provoked failures and the cause that is found (all of them: make score)."""

import pytest

from headway.diagnose.evidence import Evidence
from headway.diagnose.reader import read_stream
from headway.diagnose.runner import diagnose
from tests.needs import missing
from tests.provoke.failures import FAILURES, Failure
from tests.provoke.run import is_possible, provoke


@pytest.mark.parametrize(
    "failure", [one for one in FAILURES if one.sample], ids=lambda one: one.name
)
def test_a_provoked_failure_gives_its_cause(failure: Failure) -> None:
    if not is_possible(failure):
        missing(f"{failure.needs} is not installed")
    case = provoke(failure)
    assert case is not None
    streams = [read_stream(name, [text.encode()]) for name, text in case.streams]
    found = diagnose(Evidence(streams=streams, exit_code=case.exit_code, signal=case.signal))
    said = found.findings[0].cause if found.findings else "none"
    assert said == failure.label


def test_there_are_enough_of_them_and_each_has_a_name_of_its_own() -> None:
    names = [failure.name for failure in FAILURES]
    assert len(names) == len(set(names)) >= 60
