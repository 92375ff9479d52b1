"""Where options may stand, and that a command arrives untouched (capability 1)."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway.model.errors import UsageError
from headway.views.cli.commands import COMMANDS
from headway.views.cli.help import command_page
from headway.views.cli.options import BY_NAME, OPTIONS, Parsed, Parser


def parse(*argv: str) -> Parsed:
    return Parser(COMMANDS).parse(argv)


# Options of `submit` as one would type them, with the value that they give.
GIVEN = st.lists(
    st.sampled_from(
        [
            (["-n", "8"], ("processes", 8)), (["-n8"], ("processes", 8)), (["--processes=8"], ("processes", 8)),
            (["-e", "voc20"], ("experiment", "voc20")), (["--name", "a.b"], ("name", "a.b")),
            (["--max-duration", "3.5h"], ("max_duration_s", 12_600.0)), (["--priority", "-5"], ("priority", -5)),
            (["--memory=1GiB"], ("memory_bytes", 2**30)), (["--json"], ("json", True)), (["--wait"], ("wait", True)),
            (["--nodes", "2"], ("nodes", 2)),
            (["--tag", "--odd"], ("tags", ["--odd"])), (["--env", "A=b=c"], ("env", [("A", "b=c")])),
        ]
    ),
    unique_by=lambda pair: pair[1][0],
    max_size=6,
)  # fmt: skip
WORD = st.one_of(
    st.text(st.characters(exclude_characters="\0"), max_size=12),
    st.sampled_from(
        [
            "-n",
            "--",
            "--json",
            "-h",
            "--help",
            "run",
            "submit",
            "-",
            "",
            "a b",
            "$(x)",
            ";",
            "'",
            '"',
            "--name",
        ]
    ),
)
FIRST = WORD.filter(lambda word: not word.startswith("-") or word == "-")


@given(
    before=GIVEN,
    after=GIVEN,
    first=FIRST,
    rest=st.lists(WORD, max_size=8),
    verb=st.sampled_from(["run", "submit"]),
)
@example(before=[], after=[], first="python", rest=["-n", "8", "--", "--json", "-h"], verb="run")
@example(before=[], after=[], first="", rest=["--help"], verb="submit")
def test_everything_from_the_first_word_on_is_the_command(
    before: list[tuple[list[str], tuple[str, object]]],
    after: list[tuple[list[str], tuple[str, object]]],
    first: str,
    rest: list[str],
    verb: str,
) -> None:
    seen = {value[0] for _, value in before}
    after = [pair for pair in after if pair[1][0] not in seen]
    options = [pair for pair in (*before, *after) if verb == "submit" or pair[1][0] != "wait"]
    argv = [w for words, v in before if (words, v) in options for w in words]
    argv += [verb, *(w for words, v in after if (words, v) in options for w in words), first, *rest]
    found = parse(*argv)
    assert found.command is COMMANDS[verb]
    assert found.words == [first, *rest]
    assert found.values == dict(value for _, value in options)


@given(st.lists(WORD, min_size=1, max_size=8))
def test_after_two_dashes_everything_is_the_command(words: list[str]) -> None:
    assert parse("run", "--", *words).words == words
    assert parse("submit", "-n", "2", "--", *words).words == words


def test_only_the_first_two_dashes_are_ours() -> None:
    assert parse("run", "--", "--", "x").words == ["--", "x"]
    assert parse("run", "python", "--", "x").words == ["python", "--", "x"]


def test_options_of_other_verbs_may_stand_between_the_words() -> None:
    found = parse("q", "a1", "--json", "b2")
    assert (found.words, found.values) == (["a1", "b2"], {"json": True})
    found = parse("--tail", "5", "logs", "-f", "a1", "--rank=0")
    assert (found.words, found.values) == (["a1"], {"tail": 5, "follow": True, "rank": 0})


def test_resubmit_takes_a_command_after_two_dashes() -> None:
    found = parse("resubmit", "a1", "-n", "2", "--", "python", "x.py", "-n", "3")
    assert (found.words, found.values, found.after) == (
        ["a1"],
        {"processes": 2},
        ["python", "x.py", "-n", "3"],
    )


def test_an_option_means_the_same_everywhere_so_it_may_stand_before_the_verb() -> None:
    names = [name for option in OPTIONS for name in option.names]
    assert len(names) == len(set(names)) == len(BY_NAME)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["sumbit", "x"], 'there is no command "sumbit"; did you mean "submit"?'),
        (["python", "train.py"], "hw run python train.py"),
        (["submit", "--max-duratoin", "3h", "x"], 'did you mean "--max-duration"?'),
        (["ls", "--wait"], "hw ls has no option"),
        (["--wait", "ls"], "hw ls has no option"),
        (["run", "-n"], "-n needs a value"),
        (["run", "-n", "0", "x"], '-n: "0" is too small'),
        (["run", "-n", "two", "x"], "-n: "),
        (["run", "-n", "-3", "x"], "-n: "),
        (["run", "-n", "99999999999", "x"], "too large"),
        (["run", "--memory", "3 parsecs", "x"], "--memory: "),
        (["run", "--memory", "0", "x"], "--memory: "),
        (["run", "--max-duration", "-1h", "x"], "--max-duration: "),
        (["run", "--max-duration", "5 fortnights", "x"], "--max-duration: "),
        (["run", "--env", "=x", "y"], "--env: "),
        (["run", "--env", "x", "y"], "--env: "),
        (["run", "--name", "a/b", "y"], "--name: "),
        (["run", "--name", "..", "y"], "--name: "),
        (["run", "--name", "x" * 10_000, "y"], "--name: "),
        (["run", "--name", "a\u202eb", "y"], "--name: "),
        (["run", "--tag", "", "y"], "--tag: "),
        (["run", "--tag", "a\nb", "y"], "--tag: "),
        (["ls", "--state", "runing"], 'did you mean "running"?'),
        (["ls", "--match", "("], "--match: "),
        (["run", "-n", "2", "-n", "3", "x"], "given twice"),
        (["run", "--json=yes", "x"], "takes no value"),
        (["--", "run"], "must stand before"),
    ],
)
def test_a_wrong_option_is_named_with_what_would_be_right(argv: list[str], said: str) -> None:
    """B10, B25."""
    with pytest.raises(UsageError) as caught:
        parse(*argv)
    assert said in f"{caught.value.message}\n{caught.value.hint}"


def test_the_verb_is_known_even_when_an_option_before_it_is_wrong() -> None:
    parser = Parser(COMMANDS)
    with pytest.raises(UsageError):
        parser.parse(["--nope", "run", "x"])
    assert parser.command is COMMANDS["run"]


def test_an_option_says_what_it_means_for_the_verb_that_is_asked_about() -> None:
    token, submit = (command_page(COMMANDS[name], 100) for name in ("token", "submit"))
    assert "whose it is" in token and "the job's name" not in token
    assert "the job's name; default: after the script" in submit
    for command in COMMANDS.values():
        assert set(command.says) <= set(command.options), (
            f"{command.name} speaks of an option that it has not"
        )
