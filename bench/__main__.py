"""`python -m bench [--only NAME] [--quick] [--list]`: measures Headway and its peers, writes
`bench/results/`.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from importlib.metadata import version
from pathlib import Path

from bench import plot, table
from bench.cases import CASES, load
from bench.context import Context
from bench.machine import machine
from bench.peer import BENCH, prepare_all
from bench.result import Result
from bench.table import Report

ROUNDS, ROUNDS_QUICK = 5, 2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Headway beside its peers, in one run."
    )
    parser.add_argument(
        "--only", action="append", choices=list(CASES), metavar="NAME", help="only this; may repeat"
    )
    parser.add_argument(
        "--quick", action="store_true", help="two rounds and small data: does it work, not how fast"
    )
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument(
        "--results", type=Path, default=BENCH / "results", help="where the table and the plot go"
    )
    return parser.parse_args()


def measure(context: Context, names: list[str]) -> tuple[list[Result], dict[str, str]]:
    """Every case in turn. One that fails is told in the table; the others go on."""
    results, failed = [], {}
    for name in names:
        start_s = time.monotonic()
        context.say(f"{name}: {CASES[name]}")
        try:
            for result in load(name)(context):
                result.case = name
                results.append(result)
                context.say(
                    table.summary(Report(context.machine, [result])) or f"      {result.what}"
                )
        except Exception as error:  # any fault of one case must not cost the others their figures
            traceback.print_exc()
            failed[name] = f"{type(error).__name__}: {error}"
        context.say(f"  {time.monotonic() - start_s:.0f} s")
    return results, failed


def main() -> int:
    options = arguments()
    if options.list:
        print("\n".join(f"{name:10} {text}" for name, text in CASES.items()))
        return 0
    # an end by signal also ends what was started
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    names = [name for name in CASES if not options.only or name in options.only]
    peers, missing = prepare_all()
    runtime = tempfile.mkdtemp(prefix="hwb-")
    # sockets of the homes made here, and a path that stays short
    os.environ["XDG_RUNTIME_DIR"] = runtime
    work = BENCH / "work" / str(os.getpid())
    try:
        rounds = ROUNDS_QUICK if options.quick else ROUNDS
        context = Context(work, rounds, options.quick, peers, missing, machine(version("headway")))
        results, failed = measure(context, names)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(runtime, ignore_errors=True)
    report = Report(context.machine, results, missing, failed, options.quick)
    table.write(options.results, report)
    plot.write(options.results, report)
    print(table.summary(report))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
