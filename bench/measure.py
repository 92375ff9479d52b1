"""Repeating: every contender once per round, in an order that rotates, so that a slow minute hits
all of them.
"""

import os
import resource
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def interleave(rounds: int, contenders: Mapping[str, Callable[[int], T]]) -> dict[str, list[T]]:
    """Call each contender with the number of the round; results by name."""
    names = list(contenders)
    results: dict[str, list[T]] = {name: [] for name in names}
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            results[name].append(contenders[name](number))
    return results


@dataclass(frozen=True, slots=True)
class Run:
    wall_s: float
    cpu_s: float
    output: bytes


def run(
    argv: list[str],
    env: dict[str, str],
    cwd: Path,
    *,
    timeout_s: float = 120,
    ok: tuple[int, ...] = (0,),
) -> Run:
    """Run a command to its end: wall time from just before the start, CPU time of it and its
    awaited children.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start_s = time.perf_counter()
    done = subprocess.run(
        argv,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    wall_s = time.perf_counter() - start_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in ok:
        raise RuntimeError(
            f"{' '.join(argv)[:200]} exited with {done.returncode}: {done.stderr.decode()[-600:]}"
        )
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(wall_s, cpu_s, done.stdout)


def until_logged(argv: list[str], env: dict[str, str], cwd: Path) -> float:
    """Seconds from the start of a command until it writes `logged` to stderr; then waits for its
    end.
    """
    start_s, said = time.perf_counter(), b""
    with subprocess.Popen(
        argv,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stderr is not None
        for line in child.stderr:
            said += line
            if line == b"logged\n":
                took_s = time.perf_counter() - start_s
                child.wait()
                return took_s
    raise RuntimeError(f"it never logged: {said[-600:].decode()}")


def wait_until(
    ready: Callable[[], bool], timeout_s: float, what: str, pause_s: float = 0.02
) -> float:
    """Poll; returns the seconds it took."""
    start_s = time.perf_counter()
    while not ready():
        if time.perf_counter() - start_s > timeout_s:
            raise TimeoutError(f"after {timeout_s:g} s: {what}")
        time.sleep(pause_s)
    return time.perf_counter() - start_s


def cpu_s_of(pid: int) -> float:
    """User and system time of a running process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb_of(pid: int) -> tuple[float, float]:
    """(resident, proportional) megabytes; proportional shares pages out among those who map them."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value = line.split(":")
        found[name] = int(value.split()[0]) / 1000 * 1.024
    return found["Rss"], found["Pss"]
