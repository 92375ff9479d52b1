"""Four ranks, of which one finds a file missing. For pictures."""

import os
import time
from collections.abc import Iterator

import headway as hw

rank = int(os.environ["RANK"])
hw.init(config={"lr": 1.0, "model": {"name": "resnet", "width": 64}})


def batches() -> Iterator[int]:
    for step in range(60):
        if rank == 2 and step == 40:
            raise FileNotFoundError(2, "No such file or directory", "data/shard-0040.tar")
        yield step


print(f"rank {rank} ready")
for step in batches():
    loss = 2 / (1 + step / 8)
    hw.log({"loss": loss}, step=step)
    if step % 5 == 0:
        print(f"step {step:3d}  loss {loss:.3f}")
    time.sleep(0.05)
time.sleep(30)
