"""What a program can say while it runs: log records, progress, checkpoints of usage. `hw watch`
shows it live.

hw run -n 4 python examples/monitor/train.py
hw usage ID --html usage.html
"""

import argparse
import logging
import multiprocessing
import os
import time
from concurrent.futures import ThreadPoolExecutor

from headway import Progress, Usage, timed

PARTS = 8


def work(seconds: float) -> float:
    """Use the processor for a while."""
    until_s, total = time.monotonic() + seconds, 0.0
    while time.monotonic() < until_s:
        total += sum(i * i for i in range(1000))
    return total


def load(parts: int, seconds: float) -> None:
    """Threads: one tracker, moved on as each part is done."""
    with (
        Progress.new(total=parts, msg=("load", "parts of the data")) as progress,
        ThreadPoolExecutor(4) as pool,
    ):
        for _ in range(parts):
            done = pool.submit(time.sleep, seconds)
            done.add_done_callback(lambda _: progress.advance(1))


def train(epochs: int, steps: int, seconds: float) -> None:
    """A loop in a loop: one bar for the epochs, one for the steps of the epoch that runs."""
    with Progress.new(total=epochs, msg="epochs") as outer:
        for epoch in range(epochs):
            Usage.checkpoint("epoch", epoch)
            with Progress.new(total=steps, msg="steps") as inner:
                for step in range(steps):
                    with timed("step"):
                        work(seconds)
                    inner.update(step + 1)
            logging.info("epoch %d is done, loss %.3f", epoch + 1, 1 / (epoch + 1))
            outer.advance(1)


def evaluate(part: int, progress: Progress, seconds: float) -> None:
    """In a process of its own: what it counts is added to what the others count."""
    held = bytearray(part * 8_000_000)
    held[::4096] = bytes(len(held[::4096]))  # a page that is never written takes no memory
    work(seconds)
    progress.advance(1, distributed=True)


def evaluate_all(parts: int, seconds: float) -> None:
    Usage.checkpoint("evaluate")
    ranks = int(os.environ.get("WORLD_SIZE", "1"))  # all of them move the same bar
    with Progress.new(total=parts * ranks, msg="evaluate") as progress:
        children = [
            multiprocessing.Process(target=evaluate, args=(n, progress, seconds))
            for n in range(parts)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join()


def report() -> None:
    """Several values in one call; a table of rich, where rich is installed."""
    logging.info("finished", {"accuracy": 0.91}, "after", PARTS, "parts")
    try:
        from rich.table import Table
    except ImportError:
        return
    table = Table("class", "accuracy")
    for name, accuracy in (("cat", "0.93"), ("dog", "0.89")):
        table.add_row(name, accuracy)
    logging.info("results", table)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.1, help="how long a step takes")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    load(PARTS, options.seconds)
    train(options.epochs, options.steps, options.seconds)
    evaluate_all(PARTS, 5 * options.seconds)
    report()


if __name__ == "__main__":
    main()
