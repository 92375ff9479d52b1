"""`hw mcp`: the protocol, message by message, against a scripted server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.views.cli import mcp
from headway.views.cli.commands import COMMANDS
from headway.views.cli.dispatch import Call
from headway.views.text.terminal import Terminal
from tests.fake_api import FakeApi, error, job, serving


@pytest.fixture
def api(home: Path) -> Iterator[FakeApi]:
    with serving(home) as found:
        yield found


_calls: list[Call] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while _calls:
        _calls.pop().close()


def server(*, operates: bool = False) -> mcp.Server:
    _calls.append(Call(COMMANDS["mcp"], {}, [], None, Terminal()))
    return mcp.Server(_calls[-1], operates)


def asked(found: mcp.Server, method: str, **params: Any) -> Any:
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    answer = found.answer(json.dumps(message).encode() + b"\n")
    assert answer is not None and (answer["jsonrpc"], answer["id"]) == ("2.0", 7)
    json.dumps(answer, allow_nan=False)
    return answer.get("result") or answer["error"]


def tool(found: mcp.Server, name: str, **arguments: Any) -> Any:
    return asked(found, "tools/call", name=name, arguments=arguments)


@pytest.mark.parametrize("version", [*mcp.VERSIONS, "1999-01-01", None])
def test_the_version_is_the_clients_where_it_is_known(version: str | None) -> None:
    found = asked(server(), "initialize", protocolVersion=version, capabilities={})
    assert found["protocolVersion"] == (version if version in mcp.VERSIONS else mcp.VERSIONS[0])
    assert found["serverInfo"]["name"] == "headway"


def test_tools_are_listed_with_their_schemas_and_changing_ones_only_with_operate() -> None:
    listed = {one["name"]: one for one in asked(server(), "tools/list")["tools"]}
    assert {"jobs", "why", "logs", "metrics", "compare", "diff"} <= set(listed)
    assert all(one["annotations"]["readOnlyHint"] for one in listed.values())
    more = {one["name"] for one in asked(server(operates=True), "tools/list")["tools"]}
    assert more - set(listed) == {"abort", "resubmit"}


def test_a_changing_tool_is_refused_without_operate(api: FakeApi) -> None:
    found = tool(server(), "abort", id="a1")
    assert found["code"] == -32602 and "--operate" in found["message"]
    assert api.requests == []
    api.on("POST", "/api/jobs/a1/abort", job("x-a1", state="stopping"))
    assert "stopping" in tool(server(operates=True), "abort", id="a1")["content"][0]["text"]


def test_a_tool_answers_with_text_and_an_error_is_told_as_one(api: FakeApi) -> None:
    api.on("GET", "/api/jobs/a1", job("x-a1"))
    found = tool(server(), "job", id="a1")
    assert found["isError"] is False and json.loads(found["content"][0]["text"])["id"] == "x-a1"
    api.on("GET", "/api/jobs/zz", error(404, "not_found", 'no job ends in "zz"'))
    missing = tool(server(), "job", id="zz")
    assert missing["isError"] is True and "no job" in missing["content"][0]["text"]


def test_escapes_in_a_jobs_output_do_not_reach_the_assistant(api: FakeApi) -> None:
    line = {
        "time": None,
        "rank": 0,
        "task": "worker-0",
        "attempt": 1,
        "stream": "stdout",
        "text": "\x1b]0;x\x07hi",
    }
    api.on("GET", "/api/jobs/a1/logs", {"lines": [line], "more": False, "cursor": ""})
    assert "\\u001b" not in tool(server(), "logs", id="a1")["content"][0]["text"]


@pytest.mark.parametrize(
    "arguments", [{}, {"id": 3}, {"id": "a1", "more": "x"}, {"id": ["a1"]}, "a1"]
)
def test_wrong_arguments_are_refused_before_anything_is_asked(api: FakeApi, arguments: Any) -> None:
    found = asked(server(), "tools/call", name="job", arguments=arguments)
    assert found["code"] == -32602
    assert api.requests == []


@pytest.mark.parametrize(
    ("line", "code"),
    [(b"garbage\n", -32700), (b"[]\n", -32600), (b"3\n", -32600), (b'{"id": 1, "method": 3}\n', -32600),
     (b'{"id": 1, "method": "tools/nothing"}\n', -32601), (b'{"id": 1, "method": "ping", "params": []}\n', None),
     (b'{"id": 1, "method": "ping", "params": [1]}\n', -32602), (b"[" * 100_000 + b"\n", -32700)],
)  # fmt: skip
def test_what_is_no_request_is_answered_with_its_code(line: bytes, code: int | None) -> None:
    answer = server().answer(line)
    assert answer is not None
    assert answer.get("error", {}).get("code") == code


def test_a_notification_gets_no_answer() -> None:
    assert server().answer(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}') is None
