"""Progress in what programs print: the usual bars and lines are read, and nothing else is taken for
one (24).
"""

from typing import NamedTuple

import pytest

from headway.agent.observe.progress_parser import read_line, span_s


class Bar(NamedTuple):
    label: str
    completed: float
    total: float | None = None
    rate: float | None = None
    eta_s: float | None = None


CASES: list[tuple[str, Bar]] = [
    (" 43%|████▎     | 430/1000 [00:12<00:16, 35.20it/s]", Bar("", 430, 1000, 35.2, 16)),
    (
        "Epoch 1:  43%|####3     | 430/1000 [00:12<00:16, 35.2it/s, loss=0.3]",
        Bar("Epoch 1", 430, 1000, 35.2, 16),
    ),
    ("100%|██████████| 10/10 [00:15<00:00,  1.50s/it]", Bar("", 10, 10, 1 / 1.5, 0)),
    ("  0%|          | 0/10 [00:00<?, ?it/s]", Bar("", 0, 10, None, None)),
    (
        "train:  24%|██▍       | 1.20M/5.00M [00:01<00:03, 1.10MB/s]",
        Bar("train", 1.2e6, 5e6, 1.1e6, 3),
    ),
    ("50%|█████     | 1/2 [26:03:04<13:02:24, 93784.00s/it]", Bar("", 1, 2, 1 / 93784, 46944)),
    ("Epoch 0: 100%|██| 8/8 [00:00<00:00, 70.10it/s, v_num=3]", Bar("Epoch 0", 8, 8, 70.1, 0)),
    ("430it [00:12, 35.20it/s]", Bar("", 430, None, 35.2)),
    ("reading: 12.5kB [00:12, 1.04kB/s]", Bar("reading", 12500, None, 1040)),
    (
        "Working... ━━━━━━━━━━━━━━━━╸━━━━━━━━━━━━━━━━━━━━━━━  42% 0:00:12",
        Bar("Working", 42, 100, None, 12),
    ),
    (
        "train ━━━━━━━━━━╺━━━━━━━━━ 420/1000 0:00:30 35.1 it/s",
        Bar("train", 420, 1000, 35.1, 30),
    ),
    ("epoch ━━━━━━━━━━━━━━━━━━━━━━  10% -:--:--", Bar("epoch", 10, 100)),
    (" 430/1000 [=======>......] - ETA: 16s - loss: 0.3", Bar("", 430, 1000, None, 16)),
    (" 430/1000 [=======>......] - ETA: 1:02 - loss: 0.3", Bar("", 430, 1000, None, 62)),
    (
        "430/1000 ━━━━━━━━━━━━━━━━━━━━ 16s 35ms/step - loss: 0.3",
        Bar("", 430, 1000, 1 / 0.035, 16),
    ),
    ("iter: 42800 speed: 16.1 images/sec eta: 13:02:24", Bar("iter", 42800, None, None, 46944)),
    (
        "[12/01 10:00:00] eta: 0:12:03  iter: 1999  total_loss: 1.2",
        Bar("iter", 1999, None, None, 723),
    ),
    (
        "Epoch [1][50/1000] lr: 1.0e-02, eta: 1:02:03, time: 0.25",
        Bar("epoch 1", 50, 1000),
    ),
    ("Epoch(train) step 50 of 1000", Bar("step", 50, 1000)),
    ("step 10/100 loss 0.5", Bar("step", 10, 100)),
    ("Step: 1,000 / 20,000, 3.5k tokens/s", Bar("step", 1000, 20000)),
    ("epoch 2/10 batch 30/400 loss=0.1", Bar("epoch 2", 30, 400)),
    ("global_step=500 loss=0.1 12.5 samples/sec", Bar("global_step", 500)),
    ("iteration 30 remaining: 2h 3m", Bar("iteration", 30, None, None, 7380)),
    (
        "\x1b[A\x1b[32m 43%|████▎     | 430/1000 [00:12<00:16, 35.2it/s]\x1b[0m",
        Bar("", 430, 1000, 35.2, 16),
    ),
]


@pytest.mark.parametrize(("line", "reading"), CASES, ids=[str(i) for i in range(len(CASES))])
def test_a_bar_or_line_that_tells_progress_is_read(line: str, reading: Bar) -> None:
    found = read_line(line)
    assert found is not None
    assert found.label.rstrip(".") == reading.label
    assert (found.completed, found.total) == (reading.completed, reading.total)
    assert found.rate == pytest.approx(reading.rate) and found.eta_s == pytest.approx(reading.eta_s)


@pytest.mark.parametrize(
    "line",
    [
        "", " ", "loaded 3/4 files", "see https://example.org/a/b", "step 12.5",
        "step by step", "iter", "batch size: 64", "2024-01-02 10:00:00 INFO started",
        "File \"a.py\", line 30, in step", "epoch 30/10", "disk 42% full", "━━━━━━", "| a | b |", "10/100", "eta: 0:10",
        "tests/unit 43%", "100%", "it/s", "[00:12<00:16]", "steps: many of them", "1/2 cups", "0x1f/0x20 [==",
    ],
)  # fmt: skip
def test_what_is_not_surely_progress_is_nothing(line: str) -> None:
    assert read_line(line) is None


def test_a_hostile_line_is_read_once() -> None:
    lines = [
        " " * 4000,
        "9" * 4000,
        "━" * 4000,
        "step" + " " * 4000,
        "1/" * 2000,
        "eta: " + "1h" * 2000,
        "[" * 4000,
    ]
    for line in lines * 200:  # patterns that go back and forth over it would take hours
        assert read_line(line) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("02:24", 144), ("13:02:24", 46944), ("1 day, 2:03:04", 93784), ("16s", 16), ("2h 3m 4s", 7384), ("?", None)],
)  # fmt: skip
def test_spans_of_time(text: str, seconds: float | None) -> None:
    assert span_s(text) == seconds


@pytest.mark.cap(24)
@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("iter: 42800 loss: 0.31 speed: 16.1 images/sec eta: 13:02:24", {"loss": 0.31}),
        ("step 1200 loss 0.318", {"loss": 0.318}),
        (
            "Epoch [3][50/1000] lr: 1e-3, loss=1.5e-2, val_loss=nan",
            {"lr": 0.001, "loss": 0.015, "val_loss": float("nan")},
        ),
        (
            "Epoch: [0][ 10/100] Time 0.5 (0.6) Loss 6.91 (7.02) Acc@1 0.10",
            {"loss": 6.91, "acc@1": 0.1},
        ),
        (" 37%|███▋      | 37/100 [00:10<00:17, 3.5it/s, loss=0.25]", {"loss": 0.25}),
        ("10/100 [==>...] - ETA: 3s - loss: 0.5 - accuracy: 0.9", {"loss": 0.5, "accuracy": 0.9}),
        ("step 3/10 train loss: tensor(0.25)", {"train_loss": 0.25}),
        ("step 3/10 weight loss programme, 42 lossless files", {}),
        ("step 3/10 packet loss 3%", {}),
    ],
)
def test_a_loss_beside_a_count_is_read_with_its_name(line: str, values: dict[str, float]) -> None:
    reading = read_line(line)
    assert reading is not None and repr(dict(reading.values)) == repr(values)
