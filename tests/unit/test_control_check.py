"""What a submission may ask for (server/control/submit_check.py): B10, B24, B25."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.errors import UsageError
from headway.model.job import JobSpec
from headway.server.control import submit_check

GOOD: dict[str, Any] = {"command": ["true"], "cwd": "/", "name": "job"}


def test_a_plain_job_passes_as_it_is() -> None:
    assert submit_check.job_spec(GOOD) == JobSpec(["true"], "/", "job")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"command": []}, "no command"),
        ({"command": [""]}, "no command"),
        ({"command": "true"}, "command"),
        ({"command": ["a", 1]}, "command"),
        ({"command": ["a\0b"]}, "NUL"),
        ({"command": ["x" * (1 << 18)]}, "too long"),
        ({"command": ["x" * 1000] * 2000}, "bytes"),
        ({"command": ["\ud800"]}, "surrogate"),
        ({"name": "a/b"}, "name"),
        ({"name": ".."}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": 5}, "name"),
        ({"experiment": "../x"}, "name"),
        ({"processes": 0}, "processes"),
        ({"processes": -1}, "processes"),
        ({"processes": 10**30}, "processes"),
        ({"processes": True}, "processes"),
        ({"processes": 1.5}, "processes"),
        ({"processes": "4"}, "processes"),
        ({"cpus": 0}, "cpus"),
        ({"memory_bytes": -5}, "memory_bytes"),
        ({"max_duration_s": 0}, "max_duration_s"),
        ({"max_duration_s": -1}, "max_duration_s"),
        ({"max_duration_s": float("nan")}, "max_duration_s"),
        ({"max_duration_s": float("inf")}, "max_duration_s"),
        ({"max_duration_s": 1e300}, "max_duration_s"),
        ({"max_duration_s": "3h"}, "max_duration_s"),
        ({"grace_s": -1}, "grace_s"),
        ({"priority": 10**9}, "priority"),
        ({"umask": 0o1000}, "umask"),
        ({"tags": ["a"] * 100}, "tags"),
        ({"tags": [""]}, "tag"),
        ({"rlimits": {"NOFILES": [1, 1]}}, "NOFILE"),
        ({"rlimits": {"NOFILE": [1]}}, "NOFILE"),
        ({"rlimits": {"NOFILE": ["1", 1]}}, "NOFILE"),
        ({"procesess": 4}, "processes"),
        ({"env_set": ["A=B"]}, "variable"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError) as error:
        submit_check.job_spec({**GOOD, **change})
    assert word in f"{error.value.message} {error.value.hint}"
    assert len(error.value.message) < 400


def test_what_is_missing_is_named() -> None:
    with pytest.raises(UsageError, match="cwd and name"):
        submit_check.job_spec({"command": ["true"]})


@pytest.mark.parametrize("name", ["", "A=B", "A\0", 5])
def test_a_variable_needs_a_name(name: Any) -> None:
    with pytest.raises(UsageError, match="environment variable"):
        submit_check.environment({name: "x"}, submit_check.job_spec(GOOD))


@pytest.mark.parametrize("value", ["a\0b", None, 5, "\ud800"])
def test_a_value_that_no_program_could_get_is_refused_without_showing_it(value: Any) -> None:
    with pytest.raises(UsageError) as error:
        submit_check.environment({"KEY": value}, submit_check.job_spec(GOOD))
    assert "KEY" in error.value.message


def test_an_environment_too_large_for_execve_says_so_and_names_the_largest() -> None:
    """B24."""
    env = {f"V{i}": "x" * 100_000 for i in range(32)} | {"LARGE": "y" * 120_000}
    with pytest.raises(UsageError) as error:
        submit_check.environment(
            env, submit_check.job_spec({**GOOD, "rlimits": {"STACK": [8 << 20, -1]}})
        )
    assert "E2BIG" in error.value.message and "LARGE" in error.value.hint


def test_bytes_that_are_not_utf8_pass_through() -> None:
    word = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert submit_check.command([word]) == [word]
    assert submit_check.environment({"K": word}, submit_check.job_spec(GOOD)) == {"K": word}


@pytest.mark.parametrize("path", ["relative", "/no/such/folder", "/etc/passwd", "/a\0b", 5])
def test_a_folder_that_is_not_there_is_refused(path: Any) -> None:
    with pytest.raises(UsageError):
        submit_check.folder(path)


@pytest.mark.parametrize(
    "value", ["", "x", None, 5, "../../etc", "12345678-1234-1234-1234-1234567890ag"]
)
def test_a_uuid_is_a_uuid(value: Any) -> None:
    """It becomes part of a path, so nothing else passes."""
    with pytest.raises(UsageError):
        submit_check.job_uuid(value)


def test_a_uuid_is_written_in_one_way() -> None:
    assert (
        submit_check.job_uuid("{12345678123412341234123456789ABC}")
        == "12345678-1234-1234-1234-123456789abc"
    )


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
FIELDS = sorted(JobSpec.__dataclass_fields__)


@given(
    st.dictionaries(
        st.sampled_from(FIELDS) | st.text(),
        plain | st.lists(plain) | st.dictionaries(st.text(), plain),
    )
)
def test_nothing_but_a_usage_error_comes_out_of_any_input(changes: dict[str, Any]) -> None:
    try:
        submit_check.job_spec({**GOOD, **changes})
    except UsageError:
        pass
