"""A job as the console may see it, made of a recipe: the same for every test and for every golden
frame.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from headway.views.console.job_model import Model
from headway.views.console.log_buffer import Log

START = datetime(2026, 11, 15, 12, 4, 0, tzinfo=UTC)
NOW = START + timedelta(seconds=41)


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def line(text: str, rank: int = 0, seconds: float = 30.0, stream: str = "stdout") -> dict[str, Any]:
    return {
        "time": at(seconds),
        "rank": rank,
        "stream": stream,
        "text": text,
        "task": "worker-0",
        "attempt": 1,
    }


def job(ranks: int) -> dict[str, Any]:
    found = [
        {
            "rank": rank,
            "local_rank": rank,
            "pid": 4000 + rank,
            "state": "running",
            "started_at": at(0),
        }
        for rank in range(ranks)
    ]
    return {
        "id": "digits-7f3c2", "name": "digits", "state": "running", "cluster": "here", "gpus": None, "page": None,
        "submitted_at": at(-1), "started_at": at(0), "elapsed_s": 41.0, "processes": ranks,
        "attempts": [{"number": 1, "state": "running", "tasks": [{"name": "worker-0", "node": "node1",
                                                                  "processes": found}]}],
    }  # fmt: skip


def model(ranks: int = 4, *, rich: bool = True) -> Model:
    """41 seconds into a job of `ranks` processes; `rich` has progress and usage, which are absent
    in older servers.
    """
    made = Model(job(ranks), Log(), ranks, "running", START)
    for second in range(40):
        made.now = START + timedelta(seconds=second)
        answer: dict[str, Any] = {
            "state": "running",
            "metrics": {"loss": 1 / (second + 1), "accuracy": second / 40},
        }
        if rich:
            answer["usage"] = {
                "cpu_percent": 100.0 * ranks * (second % 7 + 3) / 10, "memory_bytes": (second + 8) * 50_000_000,
                "peak_memory_bytes": (second + 8) * 50_000_000, "gpu_percent": None, "gpu_memory_bytes": None,
            }  # fmt: skip
        made.take(answer)
    made.now = NOW
    if rich:
        made.take({"progress": progress(ranks)})
    made.take({"lines": lines(ranks), "state": "running"})
    return made


def progress(ranks: int) -> list[dict[str, Any]]:
    whole = {
        "msg": ["epoch", "3/10"],
        "completed": 37,
        "total": 100,
        "rate": 1.9,
        "eta_s": 72.0,
        "state": "running",
    }
    each = [
        {
            "msg": ["data"],
            "completed": 400 - 9 * (rank % 8),
            "total": 800,
            "rate": 41.2,
            "eta_s": 9.0,
            "rank": rank,
        }
        for rank in range(ranks)
    ]
    return [{**whole, "rank": None}, *each]


def lines(ranks: int) -> list[dict[str, Any]]:
    """All ranks say hello and a step; a few go on, one warns, one repeats itself."""
    found = [line("loading the data", rank, 2) for rank in range(ranks)]
    found += [line("step 100 done", rank, 20) for rank in range(ranks) if rank % 8 != 5]
    for step in range(12):
        found += [line(f"step {1200 + step * 10} loss {0.318 - step / 500 + rank / 1000:.3f}", rank, 31 + step / 2)
                  for rank in range(min(ranks, 3))]  # fmt: skip
    found += [line("WARNING slow batch: 1.2 s", ranks - 1, 38, "stderr")] * 3
    found += [
        line(
            "\x1b[31mred\x1b[0m \x1b]52;c;aGk=\x07 [/foo] and 図 a very long line " + "x" * 200,
            0,
            39,
        )
    ]
    return found
