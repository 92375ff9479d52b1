"""Every route with its worst input, while others ask as well: no request stops the server (A-1)."""

import json
import threading
from urllib.parse import quote

import pytest

from headway.home.connect import Client
from headway.model.job import State
from headway.server.loop_lag import ClockStep
from headway.server.routes import ROUTES
from headway.store import grep, pattern
from headway.wire import batch
from headway.wire.batch import Part
from tests.security.harness import Served
from tests.security.test_fuzz import FIELDS, SKIPPED
from tests.waiting import wait_until

EVIL = ("(a|aa)*!", "9" * 4000)
DEEP = b'{"cursor":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
WIDE = json.dumps({"metrics": ["a" * 80] * 50_000, "spec": {str(n): [n] for n in range(50_000)}})
# so that a server which stood still is told from a busy machine
STOOD_STILL_S = 10.0


def test_no_request_stops_the_server(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern, "MATCH_TIMEOUT_S", 0.2)
    monkeypatch.setattr(grep, "GREP_TIMEOUT_S", 0.2)
    job, key = served.job(state=State.RUNNING, command=["echo", "a" * 71])
    output = Part("stdout-0", "raw", 0, b"a" * 71 + b"\n")
    assert served.unix("POST", "/agent/ingest", body=batch.encode(key, [output], 1)).status == 200
    ended, answered = threading.Event(), [0]

    def ask_on() -> None:
        with Client(served.socket) as other:
            while not ended.is_set():
                assert other.request("GET", "/api/jobs").status == 200
                answered[0] += 1

    beside = threading.Thread(target=ask_on)
    beside.start()
    try:
        with Client(served.socket) as client:
            for route in ROUTES:
                if (route.method, route.path) in SKIPPED:
                    continue
                path = route.path.replace("{ref}", job.id)
                before = answered[0]
                if route.method == "GET":
                    for field in FIELDS:
                        for text in EVIL:
                            answer = client.request("GET", f"{path}?{field}={quote(text)}")
                            assert answer.status < 500, (path, field, text[:20], answer)
                    for form in ("brief", "fold"):
                        client.request("GET", f"{path}?match={quote(EVIL[0])}&{form}=true")
                else:
                    for body in (DEEP, WIDE.encode()):
                        if len(body) > route.body_bytes_max:
                            continue
                        answer = client.request(route.method, path, body=body)
                        assert answer.status < 500, (path, answer)
                wait_until(
                    lambda seen=before: answered[0] > seen,  # type: ignore[misc]
                    what=f"an answer to somebody else after {path}",
                )
    finally:
        ended.set()
        beside.join(30)
    assert not beside.is_alive()
    lag = served.unix("GET", "/api/server").json()["loop_lag"]
    assert lag["worst_s"] < STOOD_STILL_S


def test_how_long_the_loop_stood_still_is_measured_and_told(served: Served) -> None:
    lag = served.process.app.services.loop_lag  # type: ignore[union-attr]
    lag.note(1.5)
    lag.note(0.02)
    told = served.unix("GET", "/api/server").json()["loop_lag"]
    assert (told["worst_s"], told["recent_s"] >= 1.5, bool(told["worst_at"])) == (1.5, True, True)


def test_a_step_of_the_clock_is_noticed_and_told(served: Served) -> None:
    """A-13."""
    now = [1_000_000_000_000]
    clock = ClockStep(wall_ns=lambda: now[0], steady_ns=lambda: 0)
    clock.look()
    assert not clock.steps
    now[0] -= 3_600_000_000_000
    clock.look()
    (step,) = clock.steps
    assert step["step_s"] == -3600
    assert served.unix("GET", "/api/server").json()["clock_steps"] == []
