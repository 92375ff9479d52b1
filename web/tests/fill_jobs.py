"""Fills a home with many ended jobs, straight into the store: `python fill_jobs.py HOME COUNT`. For tests and bench."""

import json
import sys
import time
from pathlib import Path

from headway.home.paths import Paths
from headway.model.ids import new_uuid
from headway.model.job import JobSpec
from headway.store import catalog
from headway.store.database import Store


def main(home: str, count: int) -> None:
    store = Store(Paths(Path(home)))
    store.open()
    now_ns = time.time_ns()

    def some(c, start: int, stop: int) -> None:  # type: ignore[no-untyped-def]
        for number in range(start, stop):
            spec = JobSpec(
                ["python", "train.py", "--lr", str(number % 7 / 10), "--seed", str(number)],
                "/work",
                f"sweep{number % 5}",
            )
            job = catalog.insert_job(c, new_uuid(), spec, now_ns - (count - number) * 1_000_000_000)
            config = json.dumps({"lr": number % 7 / 10, "seed": number})
            c.execute(
                """UPDATE jobs SET state = :state, ended_ns = submitted_ns, started_ns = submitted_ns, config = :config,
                   experiment = :experiment WHERE pk = :pk""",
                {
                    "state": "failed" if number % 10 == 0 else "succeeded",
                    "config": config,
                    "experiment": f"e{number % 50}",
                    "pk": job.pk,
                },
            )

    for start in range(0, count, 5000):
        store.write(lambda c, start=start: some(c, start, min(start + 5000, count))).result(120)
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
