"""Prints lines as fast as it can: `flood.py BYTES FILE`. Leaves its own CPU and wall time, and a hash, in FILE.

Line-buffered, as Headway's bootstrap makes every Python job, so that both sides of the comparison print alike.
"""

import hashlib
import json
import resource
import sys
import time
from functools import cache

LINE = "step {:9d} loss 0.123456789 lr 0.001000 tokens/s 123456 gpu 0.93 some words to make a line of it\n"


def main() -> None:
    wanted, file = int(sys.argv[1]), sys.argv[2]
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    lines = wanted // len(LINE.format(0))
    start_s, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    write, form = sys.stdout.write, LINE.format
    for i in range(lines):
        write(form(i))
    sys.stdout.flush()
    wall_s, after = time.perf_counter() - start_s, resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with open(file, "w") as output:
        json.dump({"wall_s": wall_s, "cpu_s": cpu_s, "bytes": lines * len(form(0)), "ended": time.time()}, output)


@cache
def expected_hash(wanted: int) -> str:
    """What the stored output must hash to."""
    lines, digest = wanted // len(LINE.format(0)), hashlib.sha256()
    for start in range(0, lines, 10_000):
        digest.update("".join(LINE.format(i) for i in range(start, min(start + 10_000, lines))).encode())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
