"""A server that is not ours any more, and what is asked of ours in a person's name: file names that
lead elsewhere, commands for other jobs, queries that want files, ids that are none.
"""

import asyncio
import json
import math
import os
import subprocess
import sys
import tarfile  # noqa: TID251  (names are read, nothing is extracted)
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.home.connect import Response
from headway.server.monitor import sender
from headway.store import open_data_child
from headway.views.cli import mcp
from headway.views.cli.commands import COMMANDS
from headway.views.cli.dispatch import Call
from headway.views.cli.main import main
from headway.views.text.terminal import Terminal
from tests.fake_api import FakeApi, Reply, job, serving
from tests.storing import Bench, bench, new_job

AWAY = [
    "../outside",
    "/tmp/headway-outside",
    "a/../../outside",
    "..",
    ".hidden",
    "a\0b",
    "a\nb",
    "",
]


@pytest.fixture
def api(home: Path) -> Iterator[FakeApi]:
    with serving(home) as found:
        yield found


@pytest.fixture
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "deep" / "work"
    found.mkdir(parents=True)
    monkeypatch.chdir(found)
    return found


def files(top: Path) -> set[str]:
    return {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", AWAY)
def test_no_name_that_a_server_gives_leads_out_of_the_folder(
    api: FakeApi, home: Path, cwd: Path, tmp_path: Path, name: str
) -> None:
    entry = {"path": "x", "size": 1, "digest": "0" * 64}
    api.on("GET", "/api/artifacts/.*/file", Reply(b"x"))
    api.on(
        "GET", "/api/artifacts/[^/]*", {"name": name, "version": "v1", "size": 1, "files": [entry]}
    )
    row = {
        "name": "m",
        "step": name,
        "number": name,
        "mime": "x",
        "kind": "x",
        "size": 1,
        "rank": 0,
        "meta": {},
    }
    api.on("GET", "/api/jobs/[^/]*/media", [row])
    api.on("GET", "/api/jobs/[^/]*/media/data", Reply(b"x"))
    for part in ("events", "provenance", "timings", "metrics", "streams"):
        api.on("GET", f"/api/jobs/[^/]*/{part}", [])
    api.on("GET", "/api/jobs/[^/]*", job(name))
    api.on("GET", ".*[.](js|css)", Reply(b"x"))
    before = files(tmp_path)
    for words in (
        ["artifacts", "get", "m:v1"], ["media", "m-1", "-o", "out"], ["bundle", "m-1"], ["page", "export", "m-1"],
        ["code", "m-1"], ["reproduce", "m-1"],
    ):  # fmt: skip
        main(words)
    made = files(tmp_path) - before
    assert all(path.startswith("deep/work/") for path in made if not path.startswith("home")), made


def test_names_in_a_bundle_stay_in_its_folder(api: FakeApi, cwd: Path) -> None:
    for part in ("events", "provenance", "timings", "metrics"):
        api.on("GET", f"/api/jobs/[^/]*/{part}", [])
    stream = {"kind": "raw", "attempt": 1, "task": "../../../x", "name": "stdout-0"}
    api.on("GET", "/api/jobs/[^/]*/streams", [stream])
    api.on("GET", "/api/jobs/[^/]*/logs", Reply(b"text"))
    api.on("GET", "/api/jobs/[^/]*", job())
    assert main(["bundle", "digits-7f3c2"]) != 0
    for path in cwd.glob("*.tar.gz"):
        with tarfile.open(path) as made:
            assert not [name for name in made.getnames() if ".." in name or name.startswith("/")]


# -- hw mcp


@pytest.fixture
def assistant() -> Iterator[mcp.Server]:
    call = Call(COMMANDS["mcp"], {}, [], None, Terminal())
    yield mcp.Server(call, False)
    call.close()


@pytest.mark.parametrize("number", [math.nan, math.inf, 1.5, [], {}, None, True])
def test_an_id_that_is_none_ends_no_assistant(assistant: mcp.Server, number: Any) -> None:
    asked = json.dumps({"jsonrpc": "2.0", "id": number, "method": "ping"}).encode()
    json.dumps(assistant.answer(asked), allow_nan=False)


@pytest.mark.parametrize(
    "arguments",
    [{"id": "../../api/server"}, {"id": "a/b"}, {"id": "x\r\nHost: y"}, {"id": "-1"}, {"id": "\ud800"}, {"id": 5}, []],
)  # fmt: skip
def test_arguments_lead_to_jobs_and_to_nothing_else(
    api: FakeApi, assistant: mcp.Server, arguments: Any
) -> None:
    params = {"name": "job", "arguments": arguments}
    asked = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    answer = assistant.answer(asked.encode())
    json.dumps(answer, allow_nan=False)
    assert not [one.path for one in api.requests if not one.path.startswith("/api/jobs/")]


def test_answers_that_are_not_as_they_should_be_end_no_assistant(
    api: FakeApi, assistant: mcp.Server
) -> None:
    api.on("POST", "/api/compare", [])
    api.on("GET", "/api/jobs", {"a": 1})
    api.on("GET", "/api/jobs/.*", 7)
    for name, arguments in (("compare", {"ids": ["a"]}), ("jobs", {}), ("logs", {"id": "a"})):
        params = {"name": name, "arguments": arguments}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = assistant.answer(json.dumps(asked).encode())
        assert answer is not None and answer["result"]["isError"]


# -- hw sql


@pytest.mark.parametrize("function", ["read_csv", "read_json", "read_text", "read_parquet", "glob"])
def test_a_query_opens_no_file_not_even_to_find_out_what_it_asks_for(
    tmp_path: Path, function: str
) -> None:
    """A FIFO shows it: whoever opens it waits."""
    fifo = tmp_path / "data.csv"
    os.mkfifo(fifo)
    code = (
        "from headway.store import open_data_child; "
        f"print(open_data_child._named_tables(\"select * from {function}('{fifo}'), jobs\"))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_tables_of_a_plain_query_are_still_found() -> None:
    pytest.importorskip("duckdb")
    named = open_data_child._named_tables("select j.id from jobs j join metrics m on m.job = j.id")
    assert named == {"jobs", "metrics"}


# -- a monitor that asks for what is not its own


class Hearing(sender.Forwarder):
    """Asks a monitor whose answer is given; what it does is written down."""

    def __init__(self, b: Bench, shown: list[str], answer: Any) -> None:
        self.asked: list[tuple[str, int]] = []
        self._done, self._seen, self._told, self._answer = [], {}, {}, answer
        self.wake, self._address = threading.Event(), "head:10200"  # type: ignore[assignment]
        self._asking = None  # type: ignore[assignment]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        entries = [type("Entry", (), {"uuid": uuid}) for uuid in shown]
        self._outbox = type("Box", (), {"store": b.store, "entries": lambda _, address: entries})()  # type: ignore[assignment]
        self._control = self  # type: ignore[assignment]

    async def abort(self, pk: int) -> None:
        self.asked.append(("stop", pk))

    async def signal(self, pk: int, signum: int) -> None:
        self.asked.append(("signal", pk))

    def _post(self, route: str, client: Any = None, **more: Any) -> Response:
        return Response(200, {}, json.dumps(self._answer).encode())


def test_a_monitor_stops_the_jobs_that_are_shown_there_and_no_other(tmp_path: Path) -> None:
    b = bench(tmp_path / "home")
    other, _ = new_job(b.store, "other")
    commands: list[Any] = [
        7, None, {"do": "stop"}, {"seq": "x", "do": "stop", "uuid": b.job.uuid},
        {"seq": 1, "do": "signal", "uuid": b.job.uuid}, {"seq": 2, "do": "signal", "uuid": b.job.uuid, "signal": "9"},
        {"seq": 3, "do": "stop", "uuid": other.uuid}, {"seq": 4, "do": "rm", "uuid": b.job.uuid},
        {"seq": 5, "do": "stop", "uuid": b.job.uuid}, {"seq": 5, "do": "stop", "uuid": b.job.uuid},
    ]  # fmt: skip
    hearing = Hearing(b, [b.job.uuid], {"commands": commands})
    hearing._ask([b.job.uuid])
    hearing._loop.call_soon_threadsafe(hearing._loop.stop)
    hearing._thread.join()
    hearing._loop.close()
    assert hearing.asked == [("stop", b.job.pk)]
    b.store.close()
