"""Four ranks log a loss; rank 2 fails after a while. The others are stopped because of it.

hw run -n 4 python examples/crash/train.py
"""

import os
import time

import headway as hw

RANK = int(os.environ.get("RANK", "0"))


def load(batch: int) -> float:
    if RANK == 2 and batch == 20:
        raise ValueError(f"batch {batch} holds no samples")
    return 1.0 / (batch + 1)


def main() -> None:
    hw.init(config={"batches": 100})
    for batch in range(100):
        hw.log({"loss": load(batch)}, step=batch)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
