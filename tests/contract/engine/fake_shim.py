"""A shim in a hundred lines, for tests of engines: starts the ranks, waits, writes the exit record.
Sends nothing.

Run as `python -I -S fake_shim.py PACKAGE_PARENT shim|shipper TASK_DIR [--adopt]`. Its rules are the
real ones: it holds `shim.lock`, and refuses to start where `shim.json` lies. As `shipper --adopt`
it notes that it ran, acknowledges everything and says `lost` where no end was told. HEADWAY_FAKE in
the environment of the job breaks it on purpose.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, sys.argv[1])

from headway.model.record import FACT, OPEN
from headway.wire import frame
from headway.wire.identity import boot_id, start_of

VERB, FOLDER = sys.argv[2], Path(sys.argv[3])
TASK = json.loads((FOLDER / "task.json").read_text())


def hold(name: str) -> int:
    fd = os.open(FOLDER / name, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(3)
    return fd


def write(fd: int, fact: dict[str, object]) -> None:
    os.write(fd, frame.encode_json(FACT, {"time_ns": time.time_ns(), **fact}))
    os.fsync(fd)


def shim() -> None:
    hold("shim.lock")
    if (FOLDER / "shim.json").exists():
        sys.exit(4)
    env = json.loads((FOLDER / "env.json").read_text())
    env.pop("=check")
    if env.get("HEADWAY_FAKE") == "dies before it has started":
        sys.exit(5)
    with (FOLDER / "starts").open("a") as file:  # how often a shim really began
        file.write(f"{os.getpid()}\n")
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    draft = FOLDER / "shim.json.tmp"
    draft.write_text(
        json.dumps({"pid": os.getpid(), "start": start_of(os.getpid()), "boot_id": boot_id()})
    )
    os.rename(draft, FOLDER / "shim.json")
    stream = os.open(FOLDER / "shim", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.posix_fallocate(stream, 0, 4096)
    os.close(stream)
    stream = os.open(FOLDER / "shim", os.O_WRONLY)
    os.write(
        stream,
        frame.encode_json(OPEN, {"version": 1, "stream": "shim", "kind": "shim", "time_ns": 0}),
    )
    children = [start(rank, env) for rank in range(TASK["processes"])]
    (FOLDER / "env.json").unlink()
    codes = wait(children, asked)
    write(
        stream,
        {"type": "task_ended", **ending(codes), "reason": "stop" if asked else None, "lost": False},
    )


def start(rank: int, env: dict[str, str]) -> "subprocess.Popen[bytes]":
    world = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": TASK["world_size"]}
    world = world if TASK["ranked"] else {}
    env = {**env, **{name: str(value) for name, value in world.items()}}
    if TASK["gpus"] is not None:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, TASK["gpus"]))
    out, err = (
        os.open(FOLDER / f"{name}-{rank}", os.O_WRONLY | os.O_CREAT, 0o600)
        for name in ("stdout", "stderr")
    )
    return subprocess.Popen(
        TASK["argv"], cwd=TASK["cwd"], env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
        umask=TASK["umask"], start_new_session=True,
    )  # fmt: skip


def wait(children: "list[subprocess.Popen[bytes]]", asked: list[int]) -> list[int]:
    told = False
    while any(child.poll() is None for child in children):
        if asked and not told:
            told = True
            for child in children:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGTERM)
        time.sleep(0.01)
    return [child.returncode for child in children]


def ending(codes: list[int]) -> dict[str, int | None]:
    rank = next((rank for rank, code in enumerate(codes) if code), None)
    code = 0 if rank is None else codes[rank]
    return {
        "exit_code": None if code < 0 else code,
        "signal": -code if code < 0 else None,
        "first_rank": rank,
    }


def shipper() -> None:
    hold("shipper.lock")
    with (FOLDER / "adopted").open("a") as file:
        file.write("once\n")
    stream = os.open(FOLDER / f"shipper-{os.getpid()}-abcdef", os.O_WRONLY | os.O_CREAT, 0o600)
    write(
        stream,
        {"type": "task_ended", "exit_code": None, "signal": None, "first_rank": None, "lost": True},
    )
    sizes = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
    (FOLDER / "cursor.json").write_text(json.dumps(sizes))


shim() if VERB == "shim" else shipper()
