"""Who speaks for a task whose agent is on another machine, where locks are not seen (F33)."""

import json
import threading
from pathlib import Path

import pytest

from headway.agent.ship import takeover
from headway.agent.ship.takeover import Claim
from headway.model.limits import (
    CLAIM_LOOK_S,
    CLAIM_S,
    SALVAGE_ENDED_S,
    SALVAGE_SILENT_S,
    SHIPPER_RESTART_MAX_S,
)
from headway.wire.file_lock import CLAIM, SHOWN, TAKEN
from tests.waiting import wait_until


@pytest.fixture
def task(tmp_path: Path) -> Path:
    (tmp_path / "shim.json").write_text(json.dumps({"pid": 7, "start": 1, "boot_id": "node"}))
    (tmp_path / SHOWN).touch()
    return tmp_path


def on(monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    monkeypatch.setattr(takeover, "boot_id", lambda: machine)


def test_an_agent_has_time_to_answer_before_it_counts_as_dead() -> None:
    """Also one whose shipper was just killed, and starts again after its longest pause."""
    assert 2 * CLAIM_LOOK_S < SALVAGE_ENDED_S < SALVAGE_SILENT_S and 2 * CLAIM_LOOK_S < CLAIM_S
    assert SHIPPER_RESTART_MAX_S + CLAIM_LOOK_S < SALVAGE_SILENT_S


def test_on_its_own_machine_a_task_is_taken_over_at_once(
    task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, "node")
    assert takeover.take(str(task), wait_s=3600.0)
    assert not takeover.was_taken(str(task)) and not (task / CLAIM).exists()


def test_a_claim_that_nobody_takes_away_is_final_and_the_agent_hears_of_it(
    task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, "node")
    agent = Claim(str(task), shared=True)
    assert not agent.is_lost(0.0)
    on(monkeypatch, "login")
    assert takeover.take(str(task), wait_s=0.01) and takeover.was_taken(str(task))
    assert not Claim(str(task), shared=True).is_lost(0.0)  # whoever took it over goes on
    assert takeover.take(str(task), wait_s=3600.0)  # and whoever follows him on that machine does
    assert not agent.is_lost(CLAIM_LOOK_S / 2) and agent.is_lost(CLAIM_LOOK_S)


def test_an_agent_that_lives_takes_the_claim_away_and_keeps_its_task(
    task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, "node")
    agent = Claim(str(task), shared=True)
    on(monkeypatch, "login")
    taken: list[bool] = []
    other = threading.Thread(target=lambda: taken.append(takeover.take(str(task), wait_s=60.0)))
    other.start()
    wait_until((task / CLAIM).exists, what="the claim")
    before_ns = (task / SHOWN).stat().st_mtime_ns
    assert not agent.is_lost(0.0)
    other.join(30)
    assert taken == [False] and not (task / TAKEN).exists()
    assert (task / SHOWN).stat().st_mtime_ns > before_ns


def test_a_third_machine_claims_anew_what_was_taken_over(
    task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, "login")
    assert takeover.take(str(task), wait_s=0.01)
    first = Claim(str(task), shared=True)
    on(monkeypatch, "other login")
    assert takeover.take(str(task), wait_s=0.01)
    assert first.is_lost(0.0)


def test_a_task_that_nobody_else_sees_costs_no_look(
    task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (task / CLAIM).touch()
    assert not Claim(str(task), shared=False).is_lost(1e9) and (task / CLAIM).exists()
