"""The environment of a rank, and words for commands that cannot be started (B24)."""

import errno
import json
import os
from pathlib import Path

import pytest

from headway.agent.shim.rank import BOOTSTRAP, environment, explain, read_environment
from headway.model.errors import DamagedError
from headway.spool.layout import TaskFile


def task(**fields: object) -> TaskFile:
    base = {
        "uuid": "u",
        "attempt": 2,
        "task": "worker-1",
        "home": "/h",
        "id": "j-1",
        "processes": 2,
        "first_rank": 2,
    }
    return TaskFile(**{**base, "node_rank": 1, "world_size": 4, "output_dir": "/o", **fields})  # type: ignore[arg-type]


def test_a_rank_knows_its_place_and_its_job() -> None:
    env = environment(task(), {"A": "1"}, 1, "/spool/x")
    assert (env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"]) == (
        "3",
        "1",
        "4",
        "2",
    )
    assert (env["NODE_RANK"], env["A"], env["HEADWAY_SPOOL"]) == ("1", "1", "/spool/x")
    assert (env["HEADWAY_UUID"], env["HEADWAY_ATTEMPT"], env["HEADWAY_OUTPUT_DIR"]) == (
        "u",
        "2",
        "/o",
    )
    assert os.path.isdir(os.path.join(env["HEADWAY_PACKAGE"], "headway"))
    assert "CUDA_VISIBLE_DEVICES" not in env


@pytest.mark.parametrize(
    ("before", "after"), [(None, BOOTSTRAP), ("", BOOTSTRAP), ("/a:/b", f"{BOOTSTRAP}:/a:/b")]
)
def test_the_bootstrap_stands_in_front_of_the_python_path(before: str | None, after: str) -> None:
    env = {} if before is None else {"PYTHONPATH": before}
    assert environment(task(), env, 0, "/s")["PYTHONPATH"] == after


@pytest.mark.parametrize(
    ("gpus", "seen"),
    [
        (None, (None, None)), ([4, 6], ("4", "6")), ([1], ("1", "1")), ([0, 1, 2], ("0,1,2", "0,1,2")), ([], ("", "")),
    ],
)  # fmt: skip
def test_gpus_are_given_one_each_or_all_to_all(
    gpus: list[int] | None, seen: tuple[str | None, str | None]
) -> None:
    found = tuple(
        environment(task(gpus=gpus), {}, i, "/s").get("CUDA_VISIBLE_DEVICES") for i in range(2)
    )
    assert found == seen


def test_a_value_of_the_submitter_does_not_replace_ours() -> None:
    assert environment(task(), {"RANK": "77", "HEADWAY_JOB": "x"}, 0, "/s")["RANK"] == "2"


def test_every_reason_is_said_in_words(tmp_path: Path) -> None:
    dangling = tmp_path / "link"
    dangling.symlink_to("/nowhere")
    cases = [
        (OSError(errno.ENOENT, ""), ["prog"], 127, "not found in PATH"),
        (OSError(errno.ENOENT, ""), ["/no/prog"], 127, "no such file"),
        (OSError(errno.ENOENT, ""), [str(dangling)], 126, "links to"),
        (OSError(errno.EACCES, ""), ["/x"], 126, "chmod +x"),
        (OSError(errno.ENOEXEC, ""), ["/x"], 126, "#!/bin/sh"),
        (OSError(errno.E2BIG, ""), ["/x", "a" * 10], 126, "bytes together"),
        (OSError(errno.EIO, "Input/output error"), ["/x"], 126, "Input/output error"),
        (ValueError("embedded null byte"), ["/x", "a\0"], 126, "NUL"),
        (ValueError("illegal environment variable name"), ["/x"], 126, "the environment contains"),
    ]
    for error, argv, code, words in cases:
        found = explain(error, argv, {"K": "v"})  # type: ignore[arg-type]
        assert found[0] == code and words in found[1], found


def test_the_environment_file_keeps_bytes_that_are_no_text(tmp_path: Path) -> None:
    value = os.fsdecode(b"\xff\xfe")
    (tmp_path / "env.json").write_text(json.dumps({"A": value, "B": 1}))
    env = read_environment(str(tmp_path))
    assert os.fsencode(env["A"]) == b"\xff\xfe" and env["B"] == "1"


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"'])
def test_a_damaged_environment_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "env.json").write_text(text)
    with pytest.raises(DamagedError):
        read_environment(str(tmp_path))
