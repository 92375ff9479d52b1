"""What the server leaves on disk, and what a caller's words can reach there (Sec3, Sec6, B20, B33)."""

import builtins
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from headway.server.http.auth import digest
from headway.wire import batch
from headway.wire.batch import Part, TaskKey
from tests.security.harness import Served, status

TRICKS = [
    "../../etc/passwd", "..", ".", "...", "/etc/passwd", "//etc/passwd", "\\..\\..\\etc\\passwd", "..%2f..%2fetc",
    "%2e%2e", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "%252e%252e%252fetc%252fpasswd", "..%5c..%5cetc", "job-00000%00", "%00",
    "~root", "file:%2f%2f%2fetc%2fpasswd", "....//....//etc/passwd", "..;/etc/passwd", "server.json", "headway.db",
    "browser-token", "\u2025/etc", "__proto__", "%E2%80%AEfdp", "a" * 5000, "%", "%zz", "*", "job-0000%", "_____",
]  # fmt: skip


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_everything_that_the_server_makes_is_for_its_owner_alone(home: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        served = Served(home).start()
    finally:
        os.umask(before)
    try:
        assert stat.S_ISSOCK(served.socket.stat().st_mode)
        assert mode(served.socket) == 0o600
        assert mode(served.socket.parent) == 0o700
        assert mode(served.paths.server_json) == 0o600
        assert mode(served.paths.browser_token) == 0o600
        assert mode(served.paths.db) == 0o600
    finally:
        served.stop()
    assert not served.socket.exists() and not served.paths.server_json.exists()


def test_a_socket_folder_that_is_open_to_others_is_closed_first(home: Path) -> None:
    runtime = Path(os.environ["XDG_RUNTIME_DIR"]) / "headway"
    runtime.mkdir(mode=0o777)
    runtime.chmod(0o777)
    served = Served(home).start()
    try:
        assert mode(runtime) == 0o700
    finally:
        served.stop()


def test_server_json_says_where_the_server_is_and_holds_no_secret(served: Served) -> None:
    about = json.loads(served.paths.server_json.read_text())
    assert set(about) == {"pid", "start", "address", "url", "version", "home"}
    assert about["pid"] == os.getpid() and about["address"] == str(served.socket)


def test_the_database_holds_only_hashes_of_tokens(served: Served) -> None:
    token = served.paths.browser_token.read_text()
    token_id, _, secret = token.partition(".")
    with served.store.read() as c:
        row = c.execute("SELECT * FROM tokens WHERE id = ?", [token_id]).fetchone()
    assert row["hash"] == hashlib.sha256(secret.encode()).digest() == digest(secret)
    assert row["role"] == "operate"
    assert served.tcp("GET", "/api/server", {"Authorization": f"Bearer {token}"}).status == 200
    for file in served.paths.home.rglob("*"):
        if file.is_file() and file != served.paths.browser_token:
            assert secret.encode() not in file.read_bytes(), file


def test_the_token_for_loopback_is_kept_from_one_start_to_the_next(home: Path) -> None:
    first = Served(home).start()
    token = first.paths.browser_token.read_text()
    first.stop()
    second = Served(home).start()
    try:
        assert second.paths.browser_token.read_text() == token
        assert second.tcp("GET", "/", {"Authorization": f"Bearer {token}"}).status == 200
        second.paths.browser_token.write_text("garbage")
    finally:
        second.stop()
    third = Served(home).start()
    try:
        assert third.paths.browser_token.read_text() not in (token, "garbage")
    finally:
        third.stop()


class Opened:
    """Every path that is opened while it watches."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        for module, name in ((builtins, "open"), (os, "open")):
            monkeypatch.setattr(module, name, self._wrap(getattr(module, name)))

    def _wrap(self, real: Any) -> Any:
        def wrapped(path: Any, *args: Any, **kwargs: Any) -> Any:
            self.paths.append(str(path))
            return real(path, *args, **kwargs)

        return wrapped


def raw_get(served: Served, target: str) -> int:
    head = f"GET {target} HTTP/1.1\r\nHost: headway\r\n\r\n"
    return status(served.raw(head.encode("utf-8", "surrogateescape"), unix=True))


def test_no_word_of_a_caller_reaches_open(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    job, key = served.job()
    # large enough to lie in a plain file
    body = batch.encode(key, [Part("stdout-0", "raw", 0, b"x" * 300_000)], 1)
    assert served.unix("POST", "/agent/ingest", body=body).status == 200
    opened = Opened(monkeypatch)
    fields = ("stream", "task", "rank", "attempt", "name", "grep", "state", "match")
    for trick in TRICKS:
        for rest in ("", "/logs", "/streams", "/metrics", "/events", "/provenance"):
            assert raw_get(served, f"/api/jobs/{trick}{rest}") in (400, 404), (trick, rest)
        for field in fields:
            for route in (f"/api/jobs/{job.id}/logs", f"/api/jobs/{job.id}/metrics", "/api/jobs"):
                assert raw_get(served, f"{route}?{field}={trick}") in (200, 400), (
                    route,
                    field,
                    trick,
                )
    assert raw_get(served, f"/api/jobs/{job.id}/logs?format=raw&stream=stdout") == 200
    assert [p for p in opened.paths if p.endswith("stdout-0")], "the watch on open() works"
    ours = (str(served.paths.home), "/proc/self", "/dev/null")
    bad = [p for p in opened.paths if not p.startswith(ours)]
    assert not bad, bad
    assert not [p for p in opened.paths if "passwd" in p or ".." in p]


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/b", "..", "A", "", "stdout-0/../../x", "x" * 97, "a\0b", "é"]
)
def test_a_stream_whose_name_is_a_path_is_refused_before_the_store_sees_it(
    served: Served, name: str
) -> None:
    _, key = served.job()
    body = batch.encode(key, [Part(name, "raw", 0, b"x" * 300_000)], 1)
    answer = served.unix("POST", "/agent/ingest", body=body)
    assert answer.status == 400 and answer.json()["error"]["code"] == "damaged"
    assert not served.paths.logs.exists() or not [
        f for f in served.paths.logs.rglob("*") if f.is_file()
    ]


@pytest.mark.parametrize(
    "uuid", ["../../etc", "/etc", "..", "", "00000000-0000-4000-8000-00000000000g"]
)
def test_a_task_that_does_not_exist_makes_no_folder(served: Served, uuid: str) -> None:
    served.job()
    for key in (
        TaskKey(uuid, 1, "worker-0"),
        TaskKey("00000000-0000-4000-8000-000000000001", 1, "../../x"),
    ):
        body = batch.encode(key, [Part("stdout-0", "raw", 0, b"x" * 300_000)], 1)
        assert served.unix("POST", "/agent/ingest", body=body).status == 404
    assert not served.paths.logs.exists() or not [
        f for f in served.paths.logs.rglob("*") if f.is_file()
    ]
