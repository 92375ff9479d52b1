"""psutil, asked for what wandb's monitor asked it for while it was written in Python: machine,
disk, network, and every process of the tree with CPU, memory, threads, files and disk.
"""

import importlib
import json
from collections.abc import Callable


def sampler(pids: list[int]) -> Callable[[], object]:
    psutil = importlib.import_module("psutil")
    known = {pid: psutil.Process(pid) for pid in pids}

    def sample() -> str:
        told = {
            "cpu": psutil.cpu_percent(percpu=True), "memory": psutil.virtual_memory()._asdict(),
            "disk": psutil.disk_io_counters()._asdict(), "network": psutil.net_io_counters()._asdict(),
            "processes": [],
        }  # fmt: skip
        for process in psutil.Process().children(recursive=True):
            process = known.setdefault(process.pid, process)
            with process.oneshot():
                told["processes"].append(
                    [process.cpu_percent(), process.memory_info().rss, process.num_threads(), process.num_fds(),
                     *process.io_counters()]
                )  # fmt: skip
        return json.dumps(told)

    return sample
