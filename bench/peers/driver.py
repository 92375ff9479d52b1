"""Runs one verb of one peer in that peer's Python: `driver.py PEER VERB FOLDER [ARGUMENTS]`. Called
by `bench/peer.py`.

    log   FOLDER VALUES CALLS    nanoseconds per call, and per call with the closing included
    kill  FOLDER CALLS           log, then SIGKILL itself as soon as the last call has returned
    write FOLDER FILE            log every record of a data set (bench/dataset.py) and close
    read  FOLDER NAME            read one metric back: seconds and the number of values
    sample FOLDER SAMPLES N      start N processes, look at what they use: CPU milliseconds of each look
    watch FOLDER ON SECONDS N    start N processes, sample what they use each second if ON is 1: CPU seconds of doing so

What was measured goes to FOLDER/result.json.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

WARM_UP_CALLS = 200


def log(peer: ModuleType, folder: str, values: str, calls: str) -> dict[str, Any]:
    named = (
        {f"metric/{k}": 0.5 + k for k in range(int(values))}
        if int(values) != 2
        else {"loss": 0.5, "lr": 0.001}
    )
    write = peer.start(folder)
    timed = getattr(peer, "time_calls", None)
    _time_calls(write, named, WARM_UP_CALLS) if timed is None else timed(
        list(named.values()), WARM_UP_CALLS
    )
    start_ns = time.perf_counter_ns()
    took_ns = (
        _time_calls(write, named, int(calls))
        if timed is None
        else timed(list(named.values()), int(calls))
    )
    peer.stop()
    all_in_ns = time.perf_counter_ns() - start_ns
    took_ns.sort()
    return {
        "median_us": took_ns[len(took_ns) // 2] / 1e3,
        "p99_us": took_ns[len(took_ns) * 99 // 100] / 1e3,
        "all_in_us": all_in_ns / len(took_ns) / 1e3,
    }


def _time_calls(log: Callable[..., object], named: dict[str, float], calls: int) -> list[int]:
    clock_ns, took_ns = time.perf_counter_ns, []
    if len(named) == 2:
        x, y = named.values()
        for i in range(calls):
            start_ns = clock_ns()
            log({"loss": x, "lr": y}, step=i)
            took_ns.append(clock_ns() - start_ns)
        return took_ns
    for i in range(calls):
        start_ns = clock_ns()
        log(named, step=i)
        took_ns.append(clock_ns() - start_ns)
    return took_ns


def kill(peer: ModuleType, folder: str, calls: str) -> dict[str, Any]:
    log = peer.start(folder)
    for i in range(int(calls)):
        log({"loss": 0.5 * i, "lr": 0.001}, step=i)
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def write(peer: ModuleType, folder: str, file: str) -> dict[str, Any]:
    from array import array

    with open(file, "rb") as source:
        rows = int.from_bytes(source.read(8), "little")
        loss, norm = array("d", source.read(8 * rows)), array("d", source.read(8 * rows))
    log = peer.start(folder)
    for i in range(rows):
        log({"loss": loss[i], "grad_norm": norm[i]}, step=i)
    peer.stop()
    return {"points": 2 * rows}


def read(peer: ModuleType, folder: str, name: str) -> dict[str, Any]:
    read_values = peer.reader(folder)  # imports are not part of the reading
    start_ns = time.perf_counter_ns()
    values = read_values(name)
    return {"read_s": (time.perf_counter_ns() - start_ns) / 1e9, "values": len(values)}


def sample(peer: ModuleType, folder: str, samples: str, processes: str) -> dict[str, Any]:
    children = _idle(int(processes))
    try:
        look = peer.sampler([child.pid for child in children])
        for _ in range(5):
            look()
        start_s = time.process_time()
        for _ in range(int(samples)):
            time.sleep(0.02)
            look()
        used_s = time.process_time() - start_s
    finally:
        _end(children)
    return {"cpu_ms": 1000 * used_s / int(samples)}


def _idle(processes: int) -> list[Any]:
    import subprocess

    idle = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "jobs", "idle.py")
    return [subprocess.Popen([sys.executable, "-I", idle, "600"]) for _ in range(processes)]


def _end(children: list[Any]) -> None:
    for child in children:
        child.kill()
        child.wait()


def watch(peer: ModuleType, folder: str, on: str, seconds: str, processes: str) -> dict[str, Any]:
    children = _idle(int(processes))
    try:
        pids = peer.watch(folder, on == "1")
        time.sleep(3)  # the start of it is not what is measured
        before_s = sum(map(_cpu_s_of, pids()))
        time.sleep(float(seconds))
        used_s = sum(map(_cpu_s_of, pids())) - before_s
        memory_mb = sum(map(_memory_mb_of, pids()))
        peer.stop()
    finally:
        _end(children)
    return {"cpu_s": used_s, "memory_mb": memory_mb}


def _cpu_s_of(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb_of(pid: int) -> float:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    name, verb, *arguments = sys.argv[1:]
    file = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    spec = spec_from_file_location(f"peer_{name}", file)
    assert spec is not None and spec.loader is not None
    peer = module_from_spec(spec)
    spec.loader.exec_module(peer)
    verbs: dict[str, Callable[..., dict[str, Any]]] = {
        "log": log, "kill": kill, "write": write, "read": read, "watch": watch, "sample": sample,
    }  # fmt: skip
    result = verbs[verb](peer, *arguments)
    import json

    with open(os.path.join(arguments[0], "result.json"), "w") as output:
        json.dump(result, output)


if __name__ == "__main__":
    main()
