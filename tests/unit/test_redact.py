"""What is masked, and what is not (Sec9, capability 52)."""

import pytest

from headway.wire.redact import MASK, is_secret_name, mask_argv, mask_data, mask_text, secret_values
from tests.unit.secret_names import ORDINARY, SECRET


@pytest.mark.parametrize(
    "name",
    [
        "WANDB_API_KEY",
        "HF_TOKEN",
        "db.password",
        "githubToken",
        "AWS_SECRET_ACCESS_KEY",
        "sas_token",
        "db_pwd",
    ],
)
def test_secret_looking_names_are_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "tokenizer",
        "max_tokens",
        "keyboard",
        "lr",
        "PATH",
        "monkey",
        "SSH_AUTH_SOCK",
        "author",
        "PWD",
    ],
)
def test_ordinary_names_are_not_secret(name: str) -> None:
    assert not is_secret_name(name)


def test_a_name_listed_by_the_user_is_secret() -> None:
    assert is_secret_name("MY_PLAIN_NAME", ["MY_PLAIN_NAME"])


def test_short_values_are_not_masked_because_they_would_mask_ordinary_text() -> None:
    assert secret_values({"API_KEY": "short", "TOKEN": "long-enough-value"}) == [
        "long-enough-value"
    ]


def test_exact_values_and_shapes_are_masked_in_text() -> None:
    text = mask_text(
        "a=supersecret1 b=ghp_" + "a" * 36 + " c=https://u:pw@host/x", ["supersecret1"]
    )
    assert "supersecret1" not in text and "ghp_" not in text and "u:pw" not in text
    assert text.startswith(f"a={MASK}") and text.endswith("@host/x")


def test_nested_config_is_masked_by_key_and_by_value() -> None:
    data = {
        "lr": 0.1,
        "api_key": "x",
        "deep": [{"note": "has supersecret1 inside"}],
        "max_tokens": 5,
    }
    masked = mask_data(data, ["supersecret1"])
    assert masked == {
        "lr": 0.1,
        "api_key": MASK,
        "deep": [{"note": f"has {MASK} inside"}],
        "max_tokens": 5,
    }
    assert data["api_key"] == "x"


def test_command_lines_are_masked_word_by_word() -> None:
    argv = [
        "python",
        "t.py",
        "--api-key",
        "abc",
        "--token=def",
        "PASSWORD=ghi",
        "--lr",
        "0.1",
        "--max_tokens",
        "7",
    ]
    assert mask_argv(argv) == [
        "python", "t.py", "--api-key", MASK, f"--token={MASK}", f"PASSWORD={MASK}", "--lr", "0.1", "--max_tokens", "7",
    ]  # fmt: skip


@pytest.mark.parametrize("name", SECRET)
def test_names_of_secrets_in_the_wild_are_secret(name: str) -> None:
    """A-5: two hundred names that people give to their secrets."""
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ORDINARY)
def test_names_of_ordinary_things_stay_readable(name: str) -> None:
    assert not is_secret_name(name)


def test_the_list_of_names_is_long() -> None:
    assert len(set(SECRET)) >= 200 and len(set(ORDINARY)) >= 100


def test_a_value_is_secret_by_its_shape_whatever_its_name() -> None:
    env = {"PLAIN": "hf_" + "a" * 34, "OTHER": "AIza" + "b" * 35, "TEXT": "see hf_ in the manual"}
    assert sorted(secret_values(env)) == sorted([env["PLAIN"], env["OTHER"]])
