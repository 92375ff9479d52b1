"""The config that a command line says."""

from base64 import b64encode
from typing import Any

import pytest

from headway.settings.argument_config import of_command

PACKED = b64encode(b"lr: 0.1\nmodel:\n  depth: 3\n").decode()


@pytest.mark.parametrize(
    ("command", "config"),
    [
        ("python train.py --lr 0.1 --epochs=3 --fp16", {"lr": 0.1, "epochs": 3, "fp16": True}),
        ("python -u train.py --layers 1 2 --name a-b", {"layers": [1, 2], "name": "a-b"}),
        (
            "python train.py lr=1e-3 model.depth=4 +opt.name=adam",
            {"lr": 1e-3, "model": {"depth": 4}, "opt": {"name": "adam"}},
        ),
        (
            "torchrun --nproc_per_node=2 train.py --min -1 --batch-size 8",
            {"min": -1, "batch_size": 8},
        ),
        ("python -m pkg.train --no-cache", {"cache": False}),
        (f"python pipeline.py -bp {PACKED}", {"bp": {"lr": 0.1, "model": {"depth": 3}}}),
        ("./train seed=3", {"seed": 3}),
        ("bash -c exit", {}),
        ("true", {}),
        ("python train.py data.csv out", {}),
    ],
)
def test_arguments_are_read(command: str, config: dict[str, Any]) -> None:
    assert of_command(command.split()) == config


@pytest.mark.parametrize(
    "word",
    [
        "a.b=1",
        "a=1",
        "--a",
        "--a.b",
        "=",
        "--",
        "-",
        "a=",
        "{",
        "--x={",
        "A" * 64,
        "====",
        "--a.b.c=3",
    ],
)
def test_odd_words_are_no_reason_to_fail(word: str) -> None:
    of_command(["python", "t.py", word, word, "--a", "x", word])
    of_command([word])
