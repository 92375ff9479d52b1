"""Calls `hw.log` as fast as it can: `loop.py CALLS VALUES FOLDER`. Leaves its start and end time in
FOLDER/RANK.
"""

import os
import sys
import time

import headway as hw


def main() -> None:
    calls, values, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    named = {f"metric/{k}": 0.5 + k for k in range(values)}
    start_s = time.time()
    for i in range(calls):
        hw.log(named, step=i)
    end_s = time.time()
    with open(os.path.join(folder, os.environ["RANK"]), "w") as file:
        file.write(f"{start_s} {end_s}")


if __name__ == "__main__":
    main()
