"""`hw tensorboard`: the real TensorBoard over the chosen jobs, live, also over metrics of jobs that
never wrote an event file.
"""

import importlib.util
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from headway.model.errors import HeadwayError, UsageError
from headway.model.json_types import JsonObject
from headway.views.api.source import Source, job_route
from headway.views.cli import compare
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt

_POINTS: Final = 2_000  # of one curve: more than TensorBoard itself shows; extremes are kept
_REFRESH_S: Final = 3.0
_READY_S: Final = 60.0
_FIRST_PORT: Final = 6006
_PORTS: Final = 100
# without a word about states: failed and stopped jobs are left out, as they were by others before
_STATES: Final = ("running", "stopping", "succeeded", "held", "unknown", "waiting")
Job = JsonObject


def command(call: Call) -> int:
    words = [id_ for group in call.get("run_ids") or [] for id_ in group]
    call.words = [*call.words, *words]
    compare.check(call)
    program = _program()
    for number in (signal.SIGTERM, signal.SIGHUP):  # `kill` ends TensorBoard, too, as Ctrl-C does
        signal.signal(number, _interrupt)
    source = call.source()
    port = call.get("port") or free_port()
    with tempfile.TemporaryDirectory(prefix="headway-tensorboard-") as folder:
        return _serve(call, source, program, port, Path(folder))


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _program() -> list[str]:
    if importlib.util.find_spec("tensorboard") is not None:
        return [sys.executable, "-m", "tensorboard.main"]
    found = shutil.which("tensorboard")
    if found is None:
        raise HeadwayError(
            "TensorBoard is not installed",
            "pip install 'headway[tensorboard]'; hw plot draws without it",
        )
    return [found]


def free_port() -> int:
    """From 6006 on, as people expect it."""
    for port in range(_FIRST_PORT, _FIRST_PORT + _PORTS):
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise HeadwayError(
        f"no port from {_FIRST_PORT} to {_FIRST_PORT + _PORTS - 1} is free", "name one: --port 7007"
    )


def _chosen(call: Call, source: Source) -> list[Job]:
    body = compare.body_of(call, source) | {"metrics_max": 0}
    if not body["state"] and not body["ids"]:
        body["state"] = list(_STATES)
    jobs: list[Job] = source.post("/api/compare", body, again=True)["jobs"]
    return jobs


def _serve(call: Call, source: Source, program: list[str], port: int, folder: Path) -> int:
    from headway.views.plot.event_folder import EventFolder

    events = EventFolder(folder)
    jobs = _chosen(call, source)
    if not jobs:
        raise HeadwayError("no job matches", "hw ls shows the jobs; --status adds failed ones")
    done: set[str] = set()
    _refresh(source, jobs, events, done)
    words = [
        *program, "--logdir", str(folder), "--port", str(port), "--host", "127.0.0.1",
        "--reload_interval", str(int(_REFRESH_S)), "--window_title", "Headway",
    ]  # fmt: skip
    said = folder / "tensorboard.log"  # a pipe that nobody reads would fill up and stop it
    with said.open("wb") as log:
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        _await_ready(child, port, said)
        url = f"http://127.0.0.1:{port}/"
        if call.as_json:
            call.terminal.put_json(
                {"url": url, "jobs": [job["id"] for job in jobs], "pid": child.pid}
            )
        else:
            call.terminal.put(url)
            call.terminal.say(f"  TensorBoard over {fmt.plural(len(jobs), 'job')}; Ctrl-C ends it")
        return _follow(call, source, child, events, done)
    except KeyboardInterrupt:
        return 0
    finally:
        child.terminate()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _await_ready(child: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            said = log.read_text(errors="replace").strip().splitlines()
            raise HeadwayError(
                f"TensorBoard ended with exit code {child.returncode}",
                said[-1][:300] if said else "",
            )
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise HeadwayError(f"TensorBoard did not answer on port {port} within {_READY_S:g} s")


def _follow(
    call: Call, source: Source, child: "subprocess.Popen[bytes]", events: object, done: set[str]
) -> int:
    """Until TensorBoard ends, Ctrl-C, or so long after the last job has ended."""
    linger_s = call.get("linger_s")
    over_s: float | None = None
    while child.poll() is None:
        time.sleep(_REFRESH_S)
        try:
            jobs = _chosen(call, source)
            _refresh(source, jobs, events, done)
        except HeadwayError:
            continue  # the server is away; TensorBoard shows what there is
        if any(job["state"] not in fmt.ENDED for job in jobs):
            over_s = None
        elif over_s is None:
            over_s = time.monotonic()
        if linger_s is not None and over_s is not None and time.monotonic() - over_s > linger_s:
            return 0
    return 1


def _refresh(source: Source, jobs: list[Job], events: Any, done: set[str]) -> None:
    """New points of every job; one that had ended before it was read is read no more."""
    for job in jobs:
        if job["id"] in done or job["state"] == "waiting":
            continue
        found = source.get(job_route(job["id"], "metrics"), [("points", _POINTS)])
        for series in found.values():
            events.add(job["id"], series)
        if job["state"] in fmt.ENDED:
            done.add(job["id"])


# -- for run and submit


def start_beside(call: Call, job_id: str) -> "subprocess.Popen[bytes]":
    """`--tensorboard` of run and submit: a TensorBoard of its own for the new job, in the
    background; it ends an hour after the job.
    """
    _program()
    port = free_port()
    words = [
        sys.executable, "-m", "headway.views.cli.main", "tensorboard", job_id, "--port", str(port),
        "--linger", "1h",
    ]  # fmt: skip
    child = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    call.terminal.say(
        f"hw: TensorBoard of {call.terminal.err.safe(job_id)} comes up at http://127.0.0.1:{port}/ "
        f"and ends an hour after it (kill {child.pid} ends it now)"
    )
    return child


def states_of(text: str, name: str) -> list[str]:
    """`--status`: our words for states, or those of Azure ML."""
    from headway.views.cli.options import STATES

    theirs = {
        "completed": "succeeded",
        "canceled": "stopped",
        "cancelled": "stopped",
        "queued": "waiting",
    }
    found = []
    for word in text.replace(" ", "").lower().split(","):
        state = theirs.get(word, word)
        if state not in STATES:
            raise UsageError(f'{name}: "{word[:40]}" is no state', "states: " + ", ".join(STATES))
        found.append(state)
    return found
