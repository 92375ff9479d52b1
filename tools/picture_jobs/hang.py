"""Three ranks wait for the fourth, which waits for a queue that stays empty. For pictures."""

import os
import queue
import threading
import time

import headway as hw

rank = int(os.environ["RANK"])


def all_reduce() -> None:
    threading.Event().wait()


def next_batch() -> None:
    queue.Queue[int]().get()


def train() -> None:
    for step in range(50):
        hw.log({"loss": 2 / (1 + step / 9)}, step=step)
        print(f"step {step}")
        time.sleep(0.05)
    if rank == 3:
        next_batch()
    all_reduce()


train()
