"""One file per figure of the issue. Each has `run(context)`, which yields results; `CASES` below is
the order.
"""

import importlib

from bench.context import Case

CASES = {
    "log": "hw.log of 2 and of 100 values, beside a bare write and the peers",
    "kill": "points that survive SIGKILL of the training process",
    "start": "import and first log from a cold start",
    "command": "hw --version and hw q",
    "ingest": "ready batches from four senders; hw.log in four processes through spool and agent",
    "read": "a chart of 2000 points of 1 M; all points of a series",
    "compare": "the table of 1,000 jobs; a sweep of 1,500 runs × 1,500 metrics; 100 charts; 10 M points to Parquet",
    "size": "stored bytes per point",
    "run": "hw run true over plain true",
    "jobs": "short local jobs one after the other",
    "code": "a snapshot of 50,000 files, the first and the next",
    "flood": "a process that prints as fast as it can",
    "lines": "a process that prints 100,000 lines a second",
    "printed": "what a line by print and by logging costs the program, plain and as a job",
    "array": "1,000 jobs submitted as one; hw ls with 10,000",
    "slurm": "500 jobs submitted to a real Slurm, alone and as one array; 1,000 watched; the end of one seen",
    "rest": "memory and CPU of agent and server at rest",
    "sampler": "sampling the usage of 16 processes each second, beside psutil and wandb",
    "see": "from print() to hw logs -f and to the live view, and what that costs",
    "page": "the page in Chromium: 100,000 jobs, 3,000 metrics, a million points, 10 M lines",
    "watch": "what looking after ranks costs them; stacks of 64 ranks; merge of 10,000 stacks",
    "agents": "64 agents of 8 ranks with 10 records a second each",
}


def load(name: str) -> Case:
    case: Case = importlib.import_module(f"bench.cases.{name}").run
    return case
