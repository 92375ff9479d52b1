"""What a program parses, with its defaults, is the config of a job that tells none itself: without
an edit of the script.
"""

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from headway.settings.argument_config import of_parsed
from tests.unit.test_compat_wandb import Script


@pytest.fixture
def script(tmp_path: Path) -> Script:
    found = Script(tmp_path)
    del found.env["HEADWAY_COMPAT"]
    return found


def config(script: Script) -> dict[str, Any]:
    return dict(script.facts("config")[-1]["config"])


PARSER = """
    import argparse, sys
    sys.argv[1:] = ["--lr", "0.5", "--api-key", "sk-abcdefghijklmnopqrstuv"]
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--opt", default="sgd")
    parser.add_argument("--api-key")
    parser.set_defaults(run=print)
"""


def test_defaults_count_and_secrets_are_masked(script: Script) -> None:
    script(PARSER + "    parser.parse_args()\n")
    found = config(script)
    assert found.pop("api_key") != "sk-abcdefghijklmnopqrstuv"
    assert found == {"lr": 0.5, "opt": "sgd"}


def test_what_the_program_says_itself_replaces_it(script: Script) -> None:
    script(
        PARSER
        + "    args = parser.parse_args()\n    import headway\n    headway.init(config={'a': 1})\n"
    )
    assert config(script) == {"a": 1}


def test_a_config_that_was_told_before_stays(script: Script) -> None:
    script(
        "    import headway\n    headway.init(config={'a': 1})\n"
        + PARSER
        + "    parser.parse_args()\n"
    )
    assert config(script) == {"a": 1}


def test_two_rounds_of_parsing_are_joined_and_words_left_over_are_told(script: Script) -> None:
    script("""
        import argparse, sys
        sys.argv[1:] = ["--base", "x", "--lr", "0.5", "extra=3"]
        first = argparse.ArgumentParser(add_help=False)
        first.add_argument("--base")
        first.parse_known_args()
        second = argparse.ArgumentParser(parents=[first])
        second.add_argument("--lr", type=float)
        second.parse_known_args()
    """)
    last = script.facts("config")[-1]
    assert last["config"] == {"base": "x", "lr": 0.5} and last["rest"] == ["extra=3"]


def test_parsers_of_libraries_and_of_child_programs_do_not_count(script: Script) -> None:
    library = script.root / "site-packages" / "launcher.py"
    library.parent.mkdir()
    library.write_text(
        textwrap.dedent("""
        import argparse
        if __name__ == "__main__":
            argparse.ArgumentParser().parse_known_args()
        def parse():
            parser = argparse.ArgumentParser()
            parser.add_argument("--inner", default=1)
            return parser.parse_args(["--inner", "2"])
    """)
    )
    child = script.root / "child.py"
    child.write_text(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--helper')\nparser.parse_args()\n"
    )
    script(
        PARSER
        + f"""
    import subprocess
    sys.path.insert(0, {str(library.parent)!r})
    import launcher
    subprocess.run([sys.executable, {str(library)!r}, "--x", "1"], check=True)
    assert not __import__("os").environ.get("HEADWAY_ARGUMENTS_OF")
    parser.parse_args()
    launcher.parse()
    subprocess.run([sys.executable, {str(child)!r}, "--helper", "1"], check=True)
    """
    )
    assert [sorted(fact["config"]) for fact in script.facts("config")] == [["api_key", "lr", "opt"]]


def test_other_ranks_tell_nothing(script: Script) -> None:
    script.env["RANK"] = "3"
    script(PARSER + "    parser.parse_args()\n")
    assert script.facts("config") == []


def test_flags_of_absl_that_the_program_defines(script: Script) -> None:
    pytest.importorskip("absl")
    script("""
        import sys
        from absl import app, flags, logging
        flags.DEFINE_float("lr", 0.1, "")
        flags.DEFINE_string("opt", "sgd", "")
        sys.argv[1:] = ["--lr=0.5"]
        app.run(lambda argv: None)
    """)
    assert config(script) == {"lr": 0.5, "opt": "sgd"}


def test_a_config_that_hydra_composed(script: Script) -> None:
    """With a library of the same shape: the job is run by `hydra.core.utils.run_job`."""
    folder = script.root / "site-packages" / "hydra" / "core"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("")
    (folder / "__init__.py").write_text("")
    (folder / "utils.py").write_text(
        "def run_job(task_function, config, *rest): task_function(config)\n"
    )
    script(f"""
        import sys
        sys.path.insert(0, {str(folder.parents[1])!r})
        from hydra.core.utils import run_job
        run_job(lambda config: print(config["lr"]), {{"lr": 0.5, "model": {{"depth": 3}}, "hydra": {{"x": 1}}}})
    """)
    assert config(script) == {"lr": 0.5, "model": {"depth": 3}}


def test_a_mapping_packed_into_a_word_is_unpacked() -> None:
    packed = "bHI6IDAuMQptb2RlbDoKICBkZXB0aDogMwo="
    found = of_parsed({"bp": packed, "name": "abcdefghijklmnopqrst"}, ["--seed", "3"])
    assert found == {
        "seed": 3, "bp": {"lr": 0.1, "model": {"depth": 3}}, "name": "abcdefghijklmnopqrst",
    }  # fmt: skip
    assert json.dumps(found)


@pytest.mark.skipif(sys.platform != "linux", reason="the bootstrap of a job")
def test_a_parser_that_fails_fails_as_without_us(script: Script) -> None:
    found = script("""
        import argparse
        try:
            argparse.ArgumentParser().parse_args(["--nope"])
        except SystemExit as end:
            print("ended", end.code)
    """)
    assert found.stdout == "ended 2\n"
