"""Submits what only a job file can ask for, such as roles and nodes, over HTTP. For tests of
several tasks.
"""

import json
import os
import uuid
from typing import Any

from headway.home.paths import socket_path
from headway.views.api.http_client import Client
from tests.driver import Hw


def submit(hw: Hw, spec: dict[str, Any], env: dict[str, str] | None = None) -> str:
    """The id of the new job."""
    if not (hw.home / "server.json").exists():
        assert hw("server", "start").returncode == 0
    client = Client(socket_path(hw.home))
    assert client.try_connect()
    base = {
        "cwd": str(hw.cwd),
        "name": "many",
        "user": "u",
        "host": "h",
        "grace_s": 5.0,
        "command": [],
    }
    variables = {"PATH": os.environ["PATH"], **(env or {})}
    body = {"uuid": str(uuid.uuid4()), "spec": {**base, **spec}, "env": variables}
    answer = client.request("POST", "/api/jobs", json.dumps(body).encode(), 30.0)
    client.close()
    assert answer.status < 300, answer.body
    return str(json.loads(answer.body)["id"])


def tasks(job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Tasks of the last attempt, by name."""
    return {task["name"]: task for task in job["attempts"][-1]["tasks"]}


def lines(hw: Hw, job: str, rank: int) -> list[str]:
    """What a rank wrote to its stdout."""
    return hw("logs", job, "--rank", str(rank), "--stream", "stdout").stdout.decode().splitlines()
