"""Prints lines as fast as it can: `flood.py BYTES FILE`. Leaves its own CPU and wall time in FILE.

With a third word, at most that many lines a second.

Line-buffered, as Headway's bootstrap makes every Python job, so that both sides of the comparison
print alike.
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
    _print_all(lines) if len(sys.argv) < 4 else _print_slowly(lines, int(sys.argv[3]))
    sys.stdout.flush()
    wall_s, after = time.perf_counter() - start_s, resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    size = lines * len(LINE.format(0))
    with open(file, "w") as output:
        json.dump({"wall_s": wall_s, "cpu_s": cpu_s, "bytes": size, "ended": time.time()}, output)


def _print_all(lines: int) -> None:
    write, form = sys.stdout.write, LINE.format
    for i in range(lines):
        write(form(i))


def _print_slowly(lines: int, per_s: int) -> None:
    """A hundredth of a second's lines, then a rest until the next are due."""
    write, form, start_s = sys.stdout.write, LINE.format, time.perf_counter()
    for first in range(0, lines, per_s // 100):
        for i in range(first, min(first + per_s // 100, lines)):
            write(form(i))
        time.sleep(max(0.0, start_s + (first + per_s // 100) / per_s - time.perf_counter()))


@cache
def expected_hash(wanted: int) -> str:
    """What the stored output must hash to."""
    lines, digest = wanted // len(LINE.format(0)), hashlib.sha256()
    for start in range(0, lines, 10_000):
        digest.update(
            "".join(LINE.format(i) for i in range(start, min(start + 10_000, lines))).encode()
        )
    return digest.hexdigest()


if __name__ == "__main__":
    main()
