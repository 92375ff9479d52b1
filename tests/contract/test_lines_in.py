"""Capability 26: clients of Telegraf and InfluxDB feed a job, over UDP beside it and over HTTP from anywhere."""

import base64
import json
import socket
import textwrap
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.driver import PYTHON, Hw


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.cap(26)
def test_a_datagram_of_the_first_moment_is_not_lost(home: Path, tmp_path: Path) -> None:
    hw, port = Hw(home, tmp_path), free_port()
    hw.script(
        textwrap.dedent(f"""
        import socket
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.sendto(b"loss,split=val value=0.5,iteration=3", ("127.0.0.1", {port}))
        """)
    )
    job = hw.submit("--env", f"HEADWAY_TELEGRAF=127.0.0.1:{port}", PYTHON, "train.py")
    hw.wait_state(job, "succeeded")
    found = hw.json("metrics", job)[job]
    assert found["loss{split=val}"][0]["step"] == [3] and found["loss{split=val}"][0]["value"] == [
        0.5
    ]


@pytest.mark.cap(26)
def test_lines_over_http_need_a_token_and_name_their_job(home: Path, tmp_path: Path) -> None:
    hw = Hw(home, tmp_path)
    job = hw.submit("true")
    hw.wait_state(job, "succeeded")
    token = hw("token", "create", "--name", "telegraf", "--role", "ingest").stdout.decode().strip()
    url = json.loads((home / "server.json").read_text())["url"].rstrip("/")

    def write(text: str, login: str | None, query: str = "") -> int:
        headers = {"Authorization": login} if login else {}
        asked = urllib.request.Request(f"{url}/write{query}", text.encode(), headers)
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    password = "Basic " + base64.b64encode(f"anybody:{token}".encode()).decode()
    assert write("loss value=1", None) == 401 and write("loss value=1", "Token wrong") == 401
    assert write("loss value=1", f"Token {token}") == 400  # it names no job
    assert (
        write(f"loss,job={job} value=1,step=7 1700000000", f"Token {token}", "?precision=s") == 204
    )
    assert (
        write("loss value=2,step=8\nrubbish", password, f"?db={job}") == 400
    )  # the good line is kept
    own = hw("token", "create", "--name", job, "--role", "ingest").stdout.decode().strip()
    assert write("mine value=3,step=1", f"Token {own}") == 204  # a token that has the job's name
    assert hw.json("metrics", job)[job]["mine"][0]["value"] == [3.0]
    found = hw.json("metrics", job)[job]["loss"][0]
    assert (
        found["step"] == [7, 8]
        and found["value"] == [1.0, 2.0]
        and found["time"][0].startswith("2023-11-14")
    )
