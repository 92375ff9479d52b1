"""What people are told of a job, and in which words; and the ways out to a command, a web address
and the desktop.
"""

import json
import os
import signal
import socket
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from headway.model.errors import UsageError
from headway.model.job import Attempt, Job, JobSpec, State
from headway.server.notify import notice
from headway.server.notify.channels import command_channel, desktop, webhook
from headway.server.notify.notice import Wanted
from headway.server.notify.notifier import Plan, backoff_s
from headway.settings import layers, notify_settings
from headway.store.notice_queue import Change
from tests.driver import PYTHON
from tests.hooks import Hook

pytestmark = pytest.mark.cap(63)
SECOND = 10**9
ALL = Wanted(frozenset(notify_settings.KINDS), 600.0, 60.0)


def job(state: State = State.FAILED, **more: Any) -> Job:
    spec = JobSpec(["python", "train.py"], "/", "digits")
    attempts = [Attempt(1, state, "key", cause={"cause": "oom", "text": "killed: out of memory"})]
    values = {"started_ns": 10 * SECOND, "ended_ns": 200 * SECOND, "attempts": attempts} | more
    return Job(1, "digits-7f3c2", "u-1", spec, state, 0, 0, **values)


def change(old: str, new: str, waited_s: int = 0) -> Change:
    return Change(1, 1, old, new, 1000 * SECOND, (1000 + waited_s) * SECOND)


# -- deciding


def test_a_failure_is_told_with_its_cause() -> None:
    found = notice.of_change(change("running", "failed"), job(), ALL)
    assert found is not None and found.kind == "failed"
    assert found.facts["text"] == "digits-7f3c2 failed after 3 min: killed: out of memory"
    assert (found.facts["cause"], found.facts["elapsed_s"]) == ("oom", 190.0)


def test_success_and_a_stop_are_ends_and_an_end_that_nobody_knows_is_a_failure() -> None:
    for state, kind in (
        (State.SUCCEEDED, "ended"),
        (State.STOPPED, "ended"),
        (State.UNKNOWN, "failed"),
    ):
        found = notice.of_change(change("running", state), job(state), ALL)
        assert found is not None and found.kind == kind, state


def test_a_job_that_is_only_not_heard_of_has_not_ended() -> None:
    assert (
        notice.of_change(change("running", "unknown"), job(State.UNKNOWN, ended_ns=None), ALL)
        is None
    )


def test_a_job_that_was_held_and_then_failed_is_told_once() -> None:
    held = notice.of_change(change("running", "held"), job(State.HELD, ended_ns=None), ALL)
    failed = notice.of_change(change("held", "failed"), job(), ALL)
    assert held is not None and failed is not None and held.key == failed.key


def test_a_start_is_told_only_after_a_wait() -> None:
    running = job(State.RUNNING, ended_ns=None)
    assert notice.of_change(change("waiting", "running", 59), running, ALL) is None
    found = notice.of_change(change("waiting", "running", 61), running, ALL)
    assert (
        found is not None and found.facts["text"] == "digits-7f3c2 has started after waiting 61 s"
    )
    assert notice.of_change(change("unknown", "running", 61), running, ALL) is None


def test_what_nobody_asked_for_is_not_told() -> None:
    assert (
        notice.of_change(
            change("running", "failed"), job(), Wanted(frozenset({"ended"}), 600.0, 60.0)
        )
        is None
    )


def test_a_silence_has_one_key_until_the_next_sign() -> None:
    running = job(State.RUNNING, ended_ns=None)
    assert notice.of_silence(running, 599.0, 5, 0, ALL) is None
    first, again = (notice.of_silence(running, s, 5, 0, ALL) for s in (600.0, 900.0))
    later = notice.of_silence(running, 600.0, 6, 0, ALL)
    assert first is not None and again is not None and later is not None
    assert first.key == again.key != later.key
    assert notice.of_silence(running, 1e6, 5, 0, Wanted(ALL.on, 0.0, 0.0)) is None


def test_texts_are_masked_printable_and_bounded() -> None:
    spec = JobSpec(["run", "ghp_" + "a" * 36, "\x1b[31mred", "x" * 10_000], "/", "digits")
    found = notice.of_change(
        change("running", "failed"), Job(1, "d-1", "u", spec, State.FAILED, 0, 0), ALL
    )
    assert found is not None
    told = found.facts["command"]
    assert "ghp_" not in told and told.isprintable() and len(told) <= 500


def test_waits_between_tries_grow_and_are_bounded() -> None:
    waits = [backoff_s(n) for n in range(1, 12)]
    assert waits[:3] == [2.0, 8.0, 32.0] and waits == sorted(waits) and max(waits) == 600.0


# -- a command


def test_a_command_gets_facts_in_its_environment_and_on_stdin_and_no_shell_reads_them(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out.json"
    code = "import json,os,sys; json.dump([os.environ['HW_TEXT'], json.load(sys.stdin)], open(sys.argv[1], 'w'))"
    facts = {"text": f"$(touch {tmp_path}/owned) `id`; rm", "kind": "failed", "exit_code": None}
    assert command_channel.send([PYTHON, "-c", code, str(out)], facts, 20.0).ok
    assert json.loads(out.read_text()) == [facts["text"], facts]
    assert not (tmp_path / "owned").exists()


def test_a_command_that_fails_hangs_or_is_not_there_is_told_as_that(tmp_path: Path) -> None:
    failed = command_channel.send(["sh", "-c", "echo no such bus >&2; exit 3"], {}, 20.0)
    assert (failed.ok, failed.again, failed.detail) == (False, True, "exit code 3: no such bus")
    late = command_channel.send(["sh", "-c", "sleep 60 & wait"], {}, 0.3)
    assert not late.ok and late.again and "did not end" in late.detail
    missing = command_channel.send([str(tmp_path / "nothing")], {}, 5.0)
    assert not missing.ok and not missing.again and "cannot be started" in missing.detail


def test_a_flood_of_output_and_something_left_in_the_background_do_not_hold_us(
    tmp_path: Path,
) -> None:
    assert (
        len(command_channel.send(["sh", "-c", "yes | head -c 3000000; exit 1"], {}, 20.0).detail)
        < 400
    )
    left = tmp_path / "pid"
    assert command_channel.send(["sh", "-c", f"sleep 60 & echo $! > {left}; exit 0"], {}, 20.0).ok
    os.kill(int(left.read_text()), signal.SIGKILL)


def test_a_command_that_has_closed_its_output_is_waited_for_without_a_hurry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, looks, begun_s = command_channel._read, 0, time.monotonic()

    def counted(fd: int) -> bytes:
        nonlocal looks
        looks += 1
        return read(fd)

    monkeypatch.setattr(command_channel, "_read", counted)
    assert (
        command_channel.send(["sh", "-c", "echo told; exec >&- 2>&-; sleep 0.5"], {}, 60.0).detail
        == "told"
    )
    assert looks <= (time.monotonic() - begun_s) / command_channel._POLL_S + 3


# -- a web address


def test_a_webhook_gets_the_facts_as_json() -> None:
    with Hook() as hook:
        outcome = webhook.send(
            hook.url, notify_settings.LOOPBACK, {"notice": "u:1:end", "kind": "failed"}, 10.0
        )
    (path, headers, body) = hook.got[0]
    assert (
        outcome.ok
        and path == "/hook/s3cret-in-the-path"
        and body == {"notice": "u:1:end", "kind": "failed"}
    )
    assert headers["Idempotency-Key"] == "u:1:end" and headers["Content-Type"] == "application/json"


def test_redirects_are_not_followed() -> None:
    with Hook() as other, Hook(302, headers={"Location": other.url}) as hook:
        outcome = webhook.send(hook.url, notify_settings.LOOPBACK, {}, 10.0)
    assert not outcome.ok and not outcome.again and other.got == []


def test_a_busy_service_is_tried_again_and_one_that_says_no_is_not() -> None:
    with Hook(503, 429, 404) as hook:
        found = [webhook.send(hook.url, notify_settings.LOOPBACK, {}, 10.0) for _ in range(3)]
    assert [one.again for one in found] == [True, True, False] and not any(one.ok for one in found)


def test_only_allowed_hosts_are_told() -> None:
    hosts = ["Hooks.Example.org", "example.org:8443", "::1"]
    yes = (
        "https://hooks.example.org/x",
        "http://hooks.example.org:99/",
        "https://example.org:8443/",
        "http://[::1]:7/",
    )
    no = (
        "https://example.org/",
        "https://hooks.example.org.evil.net/",
        "http://169.254.169.254/",
        "http://127.0.0.1/",
    )
    assert all(webhook.is_allowed(url, hosts) for url in yes)
    assert not any(webhook.is_allowed(url, hosts) for url in no)
    assert (
        "notify.webhook_hosts"
        in webhook.send("http://10.0.0.1/x", notify_settings.LOOPBACK, {}, 1.0).detail
    )


def test_a_service_that_drips_is_cut() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts, and never answers
        outcome = webhook.send(
            f"http://127.0.0.1:{server.getsockname()[1]}/", notify_settings.LOOPBACK, {}, 0.3
        )
    assert not outcome.ok and outcome.again


def test_nobody_there_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    outcome = webhook.send(f"http://127.0.0.1:{port}/secret", notify_settings.LOOPBACK, {}, 5.0)
    assert not outcome.ok and outcome.again and "secret" not in outcome.detail


# -- the desktop


def test_the_desktop_tool_gets_title_and_escaped_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "notify-send"
    tool.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/words\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert desktop.send({"kind": "failed", "name": "digits", "text": "<b>a & b"}, 10.0).ok
    words = (tmp_path / "words").read_text().splitlines()
    assert words[-3:] == ["--", "Headway: digits failed", "&lt;b&gt;a &amp; b"]


def test_a_machine_without_the_tool_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = desktop.send({}, 1.0)
    assert not outcome.ok and not outcome.again and "libnotify-bin" in outcome.detail


# -- settings


def test_settings_make_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_NOTIFY_COMMAND", "tell --to 'my desk'")
    monkeypatch.setenv("HEADWAY_NOTIFY_WEBHOOK_URL", "http://localhost:99/s3cret")
    monkeypatch.setenv("HEADWAY_NOTIFY_DESKTOP", "yes")
    monkeypatch.setenv("HEADWAY_NOTIFY_ON", "failed, stalled")
    settings = layers.load(None)
    assert settings.get("notify.command") == ["tell", "--to", "my desk"]
    plan = Plan(settings)
    assert list(plan.channels) == ["command", "webhook", "desktop"] and plan.wanted.on == {
        "failed",
        "stalled",
    }
    assert "s3cret" not in str(plan.places) and "s3cret" not in str(list(settings.rows()))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("notify.webhook_url", "ftp://example.org/s3cret"),
        ("notify.webhook_url", "https://me:s3cret@example.org/"),
        ("notify.webhook_url", "https:///s3cret"),
        ("notify.webhook_url", "https://example.org:0/s3cret"),
        ("notify.webhook_hosts", ["*.example.org"]),
        ("notify.webhook_hosts", ["https://example.org"]),
        ("notify.webhook_hosts", ["example.org/path"]),
        ("notify.on", ["ends"]),
        ("notify.command", []),
        ("notify.command", "it's"),
        ("notify.desktop", "perhaps"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_and_an_address_is_not_shown(
    name: str, value: Any
) -> None:
    with pytest.raises(UsageError) as caught:
        layers.load(None, {name: value})
    assert "s3cret" not in str(caught.value)
