"""`hw sync FOLDER…`: bring in what a job recorded where no server could be reached; also from another machine.

A spool is streams of bytes at offsets. They are copied beside the server's own spool, and an agent sends them as if the job
had just ended: what the server has already is cut off, so it may be done twice, or in pieces as they come.
"""

import json
import shutil
import subprocess
from pathlib import Path

from headway.home.launch import agent_argv
from headway.home.paths import Paths
from headway.model.errors import HeadwayError, UsageError
from headway.model.json_types import JsonObject
from headway.views.cli.dispatch import Call
from headway.wire import sealed_json

SYNC_S = 600.0


def command(call: Call) -> int:
    if not call.words:
        raise UsageError(
            "hw sync needs a folder with a job's spool", f"usage: {call.command.usage}"
        )
    source = call.source()
    folders = [spool for word in call.words for spool in _spools(Path(word).expanduser())]
    if not folders:
        raise UsageError(
            f"there is no spool in {' '.join(call.words)}",
            "give HEADWAY_HOME/spool of the machine that the job ran on, or one folder in it",
        )
    results: list[JsonObject] = []
    failed = 0
    for folder in folders:
        try:
            results.append(_sync(Paths(source.home), folder))
        except HeadwayError as error:
            failed += 1
            results.append({"folder": str(folder), "uuid": None, "error": error.message})
            call.terminal.say(call.terminal.err.safe(f"hw: {folder}: {error.message}"))
            continue
        job = _job_of(call, results[-1]["uuid"])
        results[-1]["id"] = job
        if not call.as_json and job:
            call.terminal.put(job)
    if call.as_json:
        call.terminal.put_json(results)
    return 1 if failed else 0


def _spools(top: Path) -> list[Path]:
    """Folders with a task file: this one, those in it, or those of a home's spool."""
    if (top / "task.json").is_file():
        return [top]
    places = [top, top / "spool"]
    return [
        path.parent
        for place in places
        if place.is_dir()
        for path in sorted(place.glob("*/task.json"))
    ]


def _sync(paths: Paths, folder: Path) -> JsonObject:
    try:
        task = sealed_json.decode((folder / "task.json").read_bytes(), "task.json")
        uuid, name = str(task["uuid"]), f"{task['uuid']}-{task['attempt']}-{task['task']}"
    except (OSError, HeadwayError, KeyError, TypeError):
        raise UsageError(f"{folder}/task.json cannot be read") from None
    if not task.get("attached"):
        raise UsageError(
            "its job belongs to another server, which brings it in by itself",
            "hw sync is for scripts that were started by plain python",
        )
    if "/" in name or name.startswith("."):
        raise UsageError(f"{folder}/task.json names no task")
    target = paths.spool / name
    if target.resolve() != folder.resolve():
        _copy(folder, target, task, paths)
    done = subprocess.run(
        agent_argv("shipper", str(target), "--adopt"),
        capture_output=True,
        text=True,
        timeout=SYNC_S,
        check=False,
    )
    # 3: an agent is at it already; a folder that is gone was sent by the one that the server started
    if done.returncode not in (0, 3) and target.exists():
        raise UsageError(f"the agent ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return {"folder": str(folder), "uuid": uuid}


def _copy(folder: Path, target: Path, task: JsonObject, paths: Paths) -> None:
    """Only what a spool is made of; notes of how far another server had come are left out."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    target.mkdir(mode=0o700, exist_ok=True)
    for path in sorted(folder.iterdir()):
        own = path.name in ("task.json", "cursor.json", "job.json") or path.name.endswith(
            (".lock", ".tmp")
        )
        if path.is_symlink() or not path.is_file() or own:
            continue
        shutil.copyfile(path, target / path.name)
        (target / path.name).chmod(0o600)
    text = json.dumps(
        {**task, "home": str(paths.home), "socket": "", "token": "", "tls": None, "tray": ""}
    )
    (target / "task.json").write_text(text)
    (target / "task.json").chmod(0o600)


def _job_of(call: Call, uuid: str) -> str | None:
    rows = call.source().get("/api/jobs", [("limit", 1000)])
    return next((str(row["id"]) for row in rows if row.get("uuid") == uuid), None)
