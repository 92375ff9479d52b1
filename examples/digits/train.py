"""Trains a small network to read digits, on as many processes as it is given: each has its own part
of the data.

    hw run -n 4 python examples/digits/train.py

numpy only. After every epoch the processes average their weights through files in the job's output
folder, so it is real data-parallel training, as small as it can be. It runs without `hw run` as
well: `python examples/digits/train.py`.
"""

import argparse
import os
import tempfile
import time
from itertools import pairwise
from pathlib import Path

# the processes share the cores; more threads would only queue
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from data import CLASSES, SIDE, draw

import headway as hw

RANK = int(os.environ.get("RANK", "0"))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))
MEET_S = 120.0  # how long a process waits for the others before it gives up

Weights = dict[str, np.ndarray]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--pictures", type=int, default=24_000, help="of each process")
    parser.add_argument("--hidden", type=int, default=384)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.12)
    return parser.parse_args()


def new_weights(hidden: int) -> Weights:
    rng = np.random.default_rng(0)  # the same on every process
    sizes = [SIDE * SIDE, hidden, hidden, CLASSES]
    weights: Weights = {}
    for n, (inputs, outputs) in enumerate(pairwise(sizes)):
        weights[f"w{n}"] = rng.normal(0, (2 / inputs) ** 0.5, (inputs, outputs)).astype(np.float32)
        weights[f"b{n}"] = np.zeros(outputs, np.float32)
    return weights


def forward(weights: Weights, x: np.ndarray) -> list[np.ndarray]:
    """The activations of every layer; the last are probabilities."""
    first = np.maximum(x @ weights["w0"] + weights["b0"], 0)
    second = np.maximum(first @ weights["w1"] + weights["b1"], 0)
    scores = second @ weights["w2"] + weights["b2"]
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return [x, first, second, odds / odds.sum(axis=1, keepdims=True)]


def learn(weights: Weights, x: np.ndarray, y: np.ndarray, lr: float) -> tuple[float, float]:
    """One step of gradient descent; loss and accuracy before it."""
    layers = forward(weights, x)
    chosen = layers[-1][np.arange(len(y)), y]
    loss, accuracy = (
        float(-np.log(chosen + 1e-9).mean()),
        float((layers[-1].argmax(axis=1) == y).mean()),
    )
    error = layers[-1].copy()
    error[np.arange(len(y)), y] -= 1
    error /= len(y)
    for n in (2, 1, 0):
        back = (error @ weights[f"w{n}"].T) * (layers[n] > 0)
        weights[f"w{n}"] -= lr * (layers[n].T @ error)
        weights[f"b{n}"] -= lr * error.sum(axis=0)
        error = back
    return loss, accuracy


def average(weights: Weights, folder: Path, epoch: int) -> None:
    """Everybody leaves its weights in the folder, waits for the others', and goes on with the mean."""
    mine = folder / f"weights-{epoch}-{RANK}.npz"
    np.savez(folder / f"part-{RANK}.npz", **weights)
    os.rename(folder / f"part-{RANK}.npz", mine)  # whole or not there
    deadline = time.monotonic() + MEET_S
    others = [folder / f"weights-{epoch}-{rank}.npz" for rank in range(WORLD)]
    while not all(path.exists() for path in others):
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"rank {RANK} waited {MEET_S:g} s for {[p.name for p in others if not p.exists()]}"
            )
        time.sleep(0.01)
    loaded = [np.load(path) for path in others]
    for name in weights:
        weights[name] = np.mean([part[name] for part in loaded], axis=0)
    # Everybody who is in this epoch has read the last one's.
    (folder / f"weights-{epoch - 1}-{RANK}.npz").unlink(missing_ok=True)


def train(o: argparse.Namespace, folder: Path) -> None:
    x, y = draw(o.pictures, seed=RANK + 1)
    unseen_x, unseen_y = draw(2_000, seed=10_000)
    weights = new_weights(o.hidden)
    rng = np.random.default_rng(RANK)
    step = 0
    for epoch in range(1, o.epochs + 1):
        lr = o.lr * 0.5 * (1 + np.cos(np.pi * (epoch - 1) / o.epochs))
        order = rng.permutation(len(x))
        started = time.monotonic()
        for first in range(0, len(x) - o.batch + 1, o.batch):
            chosen = order[first : first + o.batch]
            loss, accuracy = learn(weights, x[chosen], y[chosen], lr)
            hw.log({"loss": loss, "accuracy": accuracy}, step=step)
            step += 1
        speed = len(x) / (time.monotonic() - started)
        average(weights, folder, epoch)
        known = float((forward(weights, unseen_x)[-1].argmax(axis=1) == unseen_y).mean())
        hw.log({"lr": lr, "speed": speed, "unseen": known}, step=step)
        print(
            f"epoch {epoch}/{o.epochs} step {step} loss {loss:.3f} unseen {known:.1%} {speed:.0f} pictures/s"
        )


def main() -> None:
    o = options()
    hw.init(config=vars(o), tags=["example"])
    with tempfile.TemporaryDirectory() as alone:
        train(o, Path(os.environ.get("HEADWAY_OUTPUT_DIR", alone)))


if __name__ == "__main__":
    main()
