"""Prints a line at uneven moments: `beat.py LINES_PER_S SECONDS`. Each line says who, which, and
when.
"""

import os
import random
import sys
import time

import headway as hw


def main() -> None:
    per_s, seconds = float(sys.argv[1]), float(sys.argv[2])
    rank, chance = os.environ["RANK"], random.Random(int(os.environ["RANK"]))
    until_s, number = time.time() + seconds, 0
    with hw.Progress.new(total=int(per_s * seconds), msg="beats") as progress:
        while time.time() < until_s:
            time.sleep(chance.uniform(0.5, 1.5) / per_s)
            print("beat", rank, number, time.time_ns())
            hw.log({"number": number}, step=number)
            progress.advance()
            number += 1


if __name__ == "__main__":
    main()
