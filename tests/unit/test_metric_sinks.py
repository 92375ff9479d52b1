"""Points on their way to a time-series database, and what Prometheus reads: each once, also after an outage."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from headway.server.api.prometheus import render
from headway.server.metric_sinks import InfluxSink
from tests.storing import Bench, bench, record, schema

GRAFANA = Path(__file__).resolve().parents[2] / "examples" / "grafana"


class Influx:
    """Takes line protocol, unless it is told to fail."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.fails = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                if outer.fails:
                    self.send_error(503)
                    return
                if self.path.startswith("/write"):
                    outer.lines += body.splitlines()
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                return None

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def get(self, name: str) -> Any:
        return {
            "influx_url": f"http://127.0.0.1:{self.server.server_port}",
            "influx_database": "x",
        }.get(name)


@pytest.fixture
def influx() -> Iterator[Influx]:
    found = Influx()
    yield found
    found.server.shutdown()
    found.server.server_close()


def points(one: Bench, *values: float, first: int = 0) -> None:
    rows = b"".join(record(0, first + step, [value]) for step, value in enumerate(values))
    declared = schema(0, "loss{split=val}") if first == 0 else b""
    one.send("metrics-0-7-aaaaaa.0", "records", declared + rows)


def test_each_point_is_sent_once_also_after_an_outage(tmp_path: Path, influx: Influx) -> None:
    one = bench(tmp_path)
    sink = InfluxSink(one.store, one.store.paths, influx)
    points(one, 0.5, float("nan"), 0.25)
    assert sink.step() is False and sink.step() is False
    assert [line.split(" ")[1] for line in influx.lines] == [
        "value=0.5,step=0i",
        "value=0.25,step=2i",
    ]
    assert ",split=val " in influx.lines[0] and f"job={one.job.id}" in influx.lines[0]
    influx.fails = True
    points(one, 0.125, first=3)
    with pytest.raises(OSError, match="503"):
        sink.step()
    influx.fails = False
    again = InfluxSink(one.store, one.store.paths, influx)  # a server that was started anew
    again._sent = again._load()
    again.step()
    assert [line.split(" ")[1] for line in influx.lines[2:]] == ["value=0.125,step=3i"]


def test_a_new_address_gets_what_comes_from_now_on(tmp_path: Path, influx: Influx) -> None:
    one = bench(tmp_path)
    points(one, 0.5)
    sink = InfluxSink(one.store, one.store.paths, influx)
    sink._sent = sink._load()
    sink.step()
    assert influx.lines == []


def test_prometheus_reads_the_last_values_of_jobs_that_run(tmp_path: Path) -> None:
    one = bench(tmp_path)
    points(one, 0.5, 0.25)
    text = one.read(render).decode()
    assert "# TYPE headway_metric gauge" in text and "headway_jobs{state=" in text
    state = one.object()["state"]
    assert ('name="loss",tags="split=val",rank="0"} 0.25' in text) == (state == "running")


@pytest.mark.parametrize("path", sorted(GRAFANA.glob("*.json")), ids=lambda path: path.name)
def test_a_dashboard_names_its_queries_and_its_place(path: Path) -> None:
    board = json.loads(path.read_text())
    assert board["uid"].startswith("headway-") and board["schemaVersion"] >= 36 and board["panels"]
    for panel in board["panels"]:
        assert {"h", "w", "x", "y"} == set(panel["gridPos"]) and panel["gridPos"]["x"] + panel[
            "gridPos"
        ]["w"] <= 24
        assert all(target.get("expr") or target.get("query") for target in panel["targets"])
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
