"""Places and accounts of storage: what a person may write, and that no key ends up where it does
not belong.
"""

from pathlib import Path

import pytest

from headway.model.errors import HeadwayError, UsageError
from headway.settings.storage_accounts import accounts
from headway.storage import location, open_store
from headway.storage.location import Place


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("az://work/a/b", Place("azure", "work", "a/b")),
        ("s3://bucket", Place("s3", "bucket", "")),
        ("file:///srv/data", Place("local", "/srv", "data")),
        ("/srv/data/x", Place("local", "/srv/data", "x")),
    ],
)
def test_a_place_is_read_as_it_is_written(text: str, expected: Place) -> None:
    assert location.parse(text) == expected


@pytest.mark.parametrize("text", ["gs://x/y", "s3://", "s3://b/../x", "az://c/a/./b"])
def test_a_place_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        location.parse(text)


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "a//b", "x\0", ""])
def test_a_name_from_storage_cannot_leave_the_folder(name: str) -> None:
    with pytest.raises(UsageError):
        location.safe_name(name)


def test_a_key_itself_in_the_settings_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match="name of a variable") as caught:
        accounts({"x": {"kind": "azure", "account": "a", "key": "c2VjcmV0/+=="}}, "accounts")
    assert "c2VjcmV0" not in str(caught.value) + caught.value.hint


@pytest.mark.parametrize(
    "given",
    [
        {"x": {"kind": "gcs"}},
        {"x": {"kind": "s3", "keyid": "A"}},
        {"x": 3},
        [1],
        {"x": {"kind": "s3", "region": 1}},
    ],
)
def test_an_account_that_is_wrong_is_refused(given: object) -> None:
    with pytest.raises(UsageError):
        accounts(given, "accounts")


def test_the_account_is_the_named_one_or_the_only_one_of_its_kind() -> None:
    known = {
        "a": {"kind": "s3"},
        "b": {"kind": "azure", "account": "b"},
        "c": {"kind": "azure", "account": "c"},
    }
    assert open_store.choose(location.parse("s3://x/y"), known, None) == {"kind": "s3"}
    assert open_store.choose(location.parse("az://x/y"), known, "c")["account"] == "c"
    assert open_store.choose(location.parse("/x"), known, None) == {}
    for text, name in (("az://x", None), ("s3://x", "b"), ("s3://x", "nobody")):
        with pytest.raises(UsageError):
            open_store.choose(location.parse(text), known, name)


def test_keys_come_from_variables_and_a_missing_one_is_named() -> None:
    found = open_store.with_keys({"kind": "azure", "sas": "MY_SAS"}, {"MY_SAS": "?sv=1&sig=2"})
    assert found["sas"] == "?sv=1&sig=2"
    with pytest.raises(UsageError, match="MY_SAS"):
        open_store.with_keys({"kind": "azure", "sas": "MY_SAS"}, {})


def test_errors_do_not_hold_a_key() -> None:
    error = open_store.explain(
        ValueError("bad key s3cr3t-value"), location.parse("s3://b/x"), {"secret": "s3cr3t-value"}
    )
    assert isinstance(error, HeadwayError) and "s3cr3t" not in str(error)


def test_a_key_that_nobody_gave_is_told_with_where_to_give_it() -> None:
    told = ValueError(
        "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token"
    )
    error = open_store.explain(told, location.parse("s3://b/x"))
    assert (
        "no key" in error.message
        and "AWS_ACCESS_KEY_ID" in error.hint
        and "169.254" not in str(error)
    )
    with pytest.raises(open_store.CredentialsError, match="no storage account is known") as caught:
        open_store.open_store(location.parse("az://work/x"), {})
    assert "AZURE_STORAGE_ACCOUNT_NAME" in caught.value.hint


def test_without_the_library_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore", None)
    with pytest.raises(HeadwayError, match="obstore") as caught:
        open_store.library()
    assert "headway[storage]" in caught.value.hint
