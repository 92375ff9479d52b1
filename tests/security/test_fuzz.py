"""Random requests from somebody who is let in: refused or answered, but never a mistake of ours
(B1–B10, B20, Sec8).
"""

import json
import random
from typing import Any
from urllib.parse import quote

import pytest

from headway.home.connect import Client
from headway.model.job import State
from headway.server.http.auth import Role
from headway.server.routes import ROUTES
from headway.wire import batch
from headway.wire.batch import Part
from tests.security.harness import Served

FIELDS = (
    "uuid spec env signal cursor tail wait_s task done at held event attempt metrics older_than_days dry_run role code "
    "state cluster experiment since match limit rank stream bytes offset grep format name points __proto__ constructor"
).split()
# a job is submitted by the real control only, and that has its own tests; a stop would end the
# server
SKIPPED = {
    ("POST", "/api/jobs"),
    ("POST", "/api/jobs/{ref}/resubmit"),
    ("POST", "/api/server/stop"),
}


def word(chance: random.Random) -> str:
    return chance.choice(
        [
            "", "0", "-1", "1e308", "NaN", "null", "true", "stdout", "raw", "lines", "running", "../../etc/passwd",
            "a" * 3000, "\u202egnp", "\ud800", "'; DROP TABLE jobs; --", "%s%n", "{{7*7}}", "<script>", "(a+)+$", "[",
            "\\", "1:2,3:4", str(chance.randint(-(2**70), 2**70)), chr(chance.randint(1, 0x10FFFF)),
        ]
    )  # fmt: skip


def value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randrange(8 if depth < 4 else 5)
    if kind == 0:
        return chance.choice([None, True, False, 0, -1, 2**63, -(2**64), 1e-300, 1.5, 10**19])
    if kind == 5:
        return [value(chance, depth + 1) for _ in range(chance.randrange(5))]
    if kind >= 6:
        return {
            chance.choice([*FIELDS, word(chance)]): value(chance, depth + 1)
            for _ in range(chance.randrange(6))
        }
    return word(chance)


def query(chance: random.Random) -> str:
    pairs = [
        f"{chance.choice(FIELDS)}={quote(word(chance), errors='ignore')}"
        for _ in range(chance.randrange(4))
    ]
    return "?" + "&".join(pairs) if pairs else ""


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_sent_is_no_mistake_of_ours(served: Served, seed: int) -> None:
    chance = random.Random(seed)
    job, key = served.job(state=State.RUNNING)
    parts = [Part("stdout-0", "raw", 0, b"hello\n" * 10), Part("agent", "raw", 0, b"agent\n")]
    assert served.unix("POST", "/agent/ingest", body=batch.encode(key, parts, 1)).status == 200
    routes = [r for r in ROUTES if (r.method, r.path) not in SKIPPED and r.role is not Role.NOBODY]
    with Client(served.socket) as client:
        for _ in range(400):
            route = chance.choice(routes)
            ref = chance.choice(
                [job.id, job.id, job.uuid, quote(word(chance), safe="", errors="ignore") or "x"]
            )
            target = route.path.replace("{ref}", ref) + query(chance)
            body = json.dumps(value(chance)).encode() if route.method == "POST" else None
            if body and "wait_s" in body.decode():
                body = b"{}"  # a valid wait would only make this slow
            answer = client.request(route.method, target, body=body)
            assert answer.status in (200, 204, 400, 404, 405, 409, 413), (
                route,
                target[:200],
                body and body[:300],
                answer,
            )
    assert served.unix("GET", "/api/server").status == 200


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_with_any_byte_changed_is_refused_or_applied_but_no_mistake_of_ours(
    served: Served, seed: int
) -> None:
    chance = random.Random(seed)
    _, key = served.job(state=State.RUNNING)
    whole = batch.encode(
        key, [Part("stdout-0", "raw", 0, b"hello\n"), Part("shim", "records", 0, b"HW" * 20)], 1
    )
    with Client(served.socket) as client:
        for _ in range(300):
            body = bytearray(whole)
            for _ in range(chance.randint(1, 4)):
                body[chance.randrange(len(body))] = chance.randrange(256)
            answer = client.request("POST", "/agent/ingest", body=bytes(body))
            assert answer.status in (200, 400, 404), (bytes(body), answer)
