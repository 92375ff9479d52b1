"""Seeded damage to the files of a home: bits flipped, pieces zeroed or cut off, files removed.

    python -m tests.damage.sweep --count 2000 [--seed 0]

After each damage the store is opened as the server does. It must open, lists must be shown, and no
job may be shown in a state that it never had, unless the damage was told. Run by `make soak`, and
in part by `tests/fault/test_damage_sweep.py`.
"""

import argparse
import contextlib
import logging
import random
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.agent.shim.rank import read_environment
from headway.engines.spool import task_folder
from headway.home.paths import Paths
from headway.model.errors import HeadwayError
from headway.model.job import State
from headway.model.record import METRICS, OPEN
from headway.server.control import env_file
from headway.spool.layout import TaskFile
from headway.store import catalog, listing, log_files, log_lines, query, series
from headway.store.database import RowsRepairedError, Store
from headway.wire import frame
from tests.storing import NOW_NS, fact, new_job, open_store, record, schema

JOBS = 14
POINTS = 40
LINES = b"".join(b"line %04d of the output\n" % number for number in range(400))
ENV = {f"NAME_{number}": "value " * number for number in range(30)}
PRIVATE = env_file.Private(dict(ENV), ["python", "train.py"])
TASK: dict[str, Any] = {
    "version": 1, "id": "job-1", "attempt": 1, "task": "worker-0", "argv": ["python", "train.py", "--lr", "0.1"],
    "cwd": "/tmp", "home": "/tmp/home", "socket": "/tmp/s", "token": "id.secret", "processes": 1,
}  # fmt: skip
HOW = ("flip", "flip", "flip", "zero", "cut", "remove", "garbage")


@dataclass(frozen=True, slots=True)
class Truth:
    """What a job was when its home was damaged."""

    state: str
    exit_code: int | None
    values: tuple[float, ...]
    command: tuple[str, ...] = ()


@dataclass(slots=True)
class Home:
    """A home to be copied and damaged, and what is true of it."""

    folder: Path
    jobs: dict[str, Truth]
    before: dict[str, set[str]]  # states that a job had earlier: what a snapshot may show


def make(folder: Path, *, killed: bool) -> Home:
    """A home with jobs in all states. `killed`: as a server leaves it that was killed, with its
    write-ahead log; else closed in order. The snapshot is older than the last states.
    """
    made = folder / "made"
    store, paths, _ = open_store(made)
    truth: dict[str, Truth] = {}
    before: dict[str, set[str]] = {}
    jobs = []
    for number in range(JOBS):
        job, key = new_job(store, f"job{number}")
        jobs.append((job, key))
        before[job.id] = {"waiting"}
        data = schema(0, "loss") + b"".join(
            record(0, step, [step / 8 + number]) for step in range(POINTS)
        )
        from headway.wire.batch import Part

        parts = [
            Part("metrics-0-100-abcdef.0", "records", 0, data),
            Part("stdout-0", "raw", 0, LINES),
            Part("shim", "records", 0, fact({"type": "note", "text": f"note {number}"})),
        ]
        assert not store.ingest(key, parts).result(30).refused
    from headway.store import backup

    assert backup.take(paths.db) is None
    for number, (job, _) in enumerate(jobs):
        state, code = _END[number % len(_END)]

        def advance(c: Any, pk: int = job.pk, end: State = state, code: int | None = code) -> None:
            if end is State.WAITING:
                return
            catalog.set_job_state(c, pk, State.RUNNING, NOW_NS + 1, started_ns=NOW_NS + 1)
            if end is not State.RUNNING:
                catalog.set_job_state(c, pk, end, NOW_NS + 2, ended_ns=NOW_NS + 2, exit_code=code)

        store.write(advance).result(30)
        before[job.id] |= {"running"}
        values = tuple(step / 8 + number for step in range(POINTS))
        truth[job.id] = Truth(str(state), code, values, tuple(job.spec.command))
    env_file.save(paths.env, jobs[0][0].uuid, PRIVATE)
    _make_spool(paths, jobs[0][0].uuid)
    store.journal.flush()
    if killed:  # copied under the open store: as kill -9 leaves it
        left = folder / "left"
        shutil.copytree(made, left)
        store.close()
        shutil.rmtree(made)
        left.rename(made)
    else:
        store.close()
    return Home(made, truth, before)


_END: tuple[tuple[State, int | None], ...] = (
    (State.SUCCEEDED, 0),
    (State.FAILED, 3),
    (State.RUNNING, None),
    (State.WAITING, None),
    (State.STOPPED, None),
)


def damage(folder: Path, chance: random.Random) -> str:
    """Damage one file of a home; what was done."""
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("server.lock", "server.log")
    )
    weights = [8 if path.name.startswith("headway.db") else 1 for path in files]
    path = chance.choices(files, weights)[0]
    how = chance.choice(HOW)
    data = bytearray(path.read_bytes())
    where = 0
    if how == "remove" or not data:
        path.unlink()
        return f"{path.name}: removed"
    if how == "flip":
        for _ in range(chance.choice((1, 1, 1, 4, 16))):
            where = chance.randrange(len(data))
            data[where] ^= 1 << chance.randrange(8)
    elif how == "zero":
        where = chance.randrange(len(data)) // 512 * 512
        size = chance.choice((16, 512, 4096, 8192))
        data[where : where + size] = bytes(len(data[where : where + size]))
    elif how == "cut":
        where = chance.randrange(len(data))
        del data[where:]
    else:
        where = chance.randrange(len(data))
        size = min(chance.choice((8, 64, 512)), len(data) - where)
        data[where : where + size] = chance.randbytes(size)
    path.write_bytes(data)
    return f"{path.name}: {how} at {where} of {len(data)}"


class FalseStateError(AssertionError):
    """Something is shown that never was, and nobody is told."""


def examine(home: Home, folder: Path) -> str:
    """Open a damaged home as the server does and look at everything; `told` or `sound`."""
    store = Store(Paths(folder), background=False, linger_s=0.0)
    store.open()
    try:
        shown = _ask(store, lambda c: listing.rows(c, catalog.JobFilter(), NOW_NS + 9))
        _ask(store, lambda c: query.job_rows(c, None, NOW_NS + 9))
        found = {row["id"]: row for row in shown}
        wrong: list[str] = []
        for job_id, true in home.jobs.items():
            row = found.get(job_id)
            if row is None:
                wrong.append(f"{job_id} is missing")
            elif row["state"] != true.state:
                wrong.append(f"{job_id} is {row['state']}, was {true.state}")
            else:
                wrong += _look_closer(store, job_id, true)
        for job_id in found.keys() - home.jobs.keys():
            wrong.append(f"{job_id} never was")
        told = bool(store.notices.all())
        if wrong and not told:
            raise FalseStateError("; ".join(wrong[:4]))
        lost = _read_back(Paths(folder), home)
        return "told" if told or lost else "sound"
    finally:
        store.close()


def _make_spool(paths: Paths, uuid: str) -> None:
    """A task whose agent is dead, with all that it had written."""
    folder = paths.spool / f"{uuid}-1-worker-0"
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    task_folder.make(folder, TASK | {"uuid": uuid}, ENV)
    opening = {"version": 1, "stream": "metrics-0-100-abcdef.0", "kind": "metrics", "rank": 0}
    frames = [frame.encode_json(OPEN, opening), schema(0, "loss")]
    frames += [_point(step) for step in range(POINTS)]
    (folder / "metrics-0-100-abcdef.0").write_bytes(b"".join(frames))
    (folder / "shim").write_bytes(fact({"type": "task_ended", "time_ns": NOW_NS}))


def _point(step: int) -> bytes:
    """As the client writes it, with its checksum."""
    head = frame.metrics_head(1, 0)
    body = frame.metrics_struct(1).pack(*head, step, NOW_NS, step / 8)
    return frame.encode(body[0], body[6:])


def _read_back(paths: Paths, home: Home) -> bool:
    """What agents and the server read from a spool and an environment is what was written, or is not
    read: then True. Anything else would be run, or shown, as it never was.
    """
    lost = False
    (env,) = {path.stem for path in (home.folder / "env").iterdir()}
    private = env_file.load(paths.env, env)
    if private is not None and private != PRIVATE:
        raise FalseStateError("an environment that nobody gave would be used")
    folder = paths.spool / f"{env}-1-worker-0"
    try:
        task = TaskFile.load(folder)
        if {name: getattr(task, name) for name in TASK} != TASK or task.uuid != env:
            raise FalseStateError("a task that nobody made would be run")
    except (OSError, HeadwayError):
        lost = True
    try:
        if read_environment(str(folder)) != ENV:
            raise FalseStateError("variables that nobody gave would be used")
    except (OSError, HeadwayError):
        lost = True
    data = b""
    with contextlib.suppress(OSError):
        data = (folder / "metrics-0-100-abcdef.0").read_bytes()
    scan = frame.scan(data, final=True)
    good = {_point(step)[frame.HEADER_BYTES :] for step in range(POINTS)}
    found = [
        bytes(payload)
        for kind, payload in frame.frames(data[: scan.end], scan.damaged)
        if kind == METRICS
    ]
    if any(payload not in good for payload in found):
        raise FalseStateError("a point that nobody logged would be sent")
    task_folder.unsent(folder)
    ended = task_folder.has_end(folder)  # a damaged end is no end, never another one
    return lost or private is None or len(found) < POINTS or not ended


def _look_closer(store: Store, job_id: str, true: Truth) -> list[str]:
    """One job: what cannot be read says so, and what is read is right."""
    wrong: list[str] = []
    try:
        pk = _ask(store, lambda c: catalog.resolve(c, job_id))
        job = _ask(store, lambda c: query.job_object(c, pk, store.paths, NOW_NS + 9))
        events = _ask(store, lambda c: query.events(c, pk))
        told = any(
            event["type"] in ("damage", "note") and "damage" in str(event) for event in events
        )
        if job["exit_code"] != true.exit_code and not told:
            wrong.append(f"{job_id} has exit code {job['exit_code']}, had {true.exit_code}")
        if tuple(job["command"]) != true.command and not told:
            wrong.append(f"{job_id} has the command {job['command']}")
        wrong += _points(store, pk, job_id, true, told)
        outputs = _ask(store, lambda c: log_lines.outputs(c, pk))
        for output in outputs:
            if output.stream != "stdout":
                continue
            pieces = _ask(
                store, lambda c, o=output: log_files.pieces(c, store.paths, o.pk, 0, o.position)
            )
            size = sum(piece.length for piece in pieces)
            if size != len(LINES):
                wrong.append(f"{job_id} has {size} bytes of {len(LINES)}")
    except HeadwayError:
        return []  # said by name
    return wrong


def _points(store: Store, pk: int, job_id: str, true: Truth, told: bool) -> list[str]:
    found = _ask(store, lambda c: series.read_series(c, pk, "loss"))
    values = tuple(float(value) for one in found for value in one.points.values)
    after = _ask(store, lambda c: query.events(c, pk))
    told = told or any(event["type"] == "damage" for event in after)
    if values == true.values or told:
        return []
    return [f"{job_id} has {len(values)} points, and they are not those that were logged"]


def _ask(store: Store, work: Any) -> Any:
    """As `Services.query` does."""
    try:
        with store.read() as c:
            return work(c)
    except RowsRepairedError:
        with store.read() as c:
            return work(c)


def sweep(folder: Path, seed: int, count: int, say: Any = None) -> Counter[str]:
    homes = [make(folder / "closed", killed=False), make(folder / "killed", killed=True)]
    seen: Counter[str] = Counter()
    for number in range(count):
        chance = random.Random(f"{seed}-{number}")
        home = homes[number % 2]
        place = folder / "damaged"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(home.folder, place)
        what = damage(place, chance)
        try:
            seen[examine(home, place)] += 1
        except Exception as error:
            kind = "killed" if number % 2 else "closed"
            text = f"seed {seed}, number {number} ({kind}), {what}: {type(error).__name__}: {error}"
            if say is None:
                raise AssertionError(text) from error
            seen["bad"] += 1
            say(text)
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(prog="sweep")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name in ("closed", "killed"):
            (place / name).mkdir()
        seen = sweep(place, given.seed, given.count, lambda text: print(text, flush=True))
    print(dict(seen))
    return 1 if seen["bad"] else 0


if __name__ == "__main__":
    sys.exit(main())
