"""The parts of the monitor one by one: addresses, the outbox, what a machine tells, and what is not
heard any more.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.home import remote_server
from headway.home.connect import Response
from headway.model.errors import UnreachableError, UsageError
from headway.model.job import Attempt, State
from headway.model.limits import SILENT_AFTER_S
from headway.server.monitor import guests, sender
from headway.server.monitor.monitor_queue import Entry, Outbox
from headway.settings import monitor_settings
from headway.store import catalog
from headway.wire import batch
from headway.wire.batch import Part
from tests.storing import Bench, bench, new_job


@pytest.fixture
def b(tmp_path: Path) -> Iterator[Bench]:
    made = bench(tmp_path / "home")
    yield made
    made.store.close()


# -- addresses


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("head:10200", "head", 10200),
        ("10.0.0.1:1", "10.0.0.1", 1),
        ("[FD00::2]:65535", "fd00::2", 65535),
    ],
)
def test_an_address_with_a_port_is_on_the_network(text: str, host: str, port: int) -> None:
    found = remote_server.parse(text)
    assert (found.host, found.port, found.path) == (host, port, "")
    assert remote_server.parse(str(found)) == found


def test_an_address_without_a_port_is_a_unix_socket() -> None:
    assert remote_server.parse("/run/x.sock").path == "/run/x.sock"
    assert remote_server.parse("/run/odd:1/x.sock").path == "/run/odd:1/x.sock"


@pytest.mark.parametrize(
    "text",
    ["", ":10200", "head:", "head:0", "head:65536", "head:x", "he ad:1", "[x]:1", "a\r\nb:1"],
)
def test_what_is_no_address_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        remote_server.parse(text)
    assert caught.value.hint


def test_only_who_listens_may_leave_the_host_out() -> None:
    listen = monitor_settings.Listen(
        remote_server.parse(":10200", listening=True), ["gate.test:7", "alias.test"]
    )
    found = monitor_settings.addresses(listen)
    assert found[:2] == ["gate.test:7", "alias.test:10200"]
    assert set(found) <= monitor_settings.hosts(listen)
    assert not any(monitor_settings.is_loopback(address.rpartition(":")[0]) for address in found)
    one = monitor_settings.Listen(remote_server.parse("10.1.2.3:10200", listening=True))
    assert monitor_settings.addresses(one) == ["10.1.2.3:10200"]
    with pytest.raises(UsageError):
        remote_server.parse("/run/x.sock", listening=True)


def test_a_pin_is_read_however_it_was_copied() -> None:
    digits = "ab" * 32
    for text in (digits, f"sha256:{digits}", f" SHA256:{digits.upper()}\n", ":".join(["AB"] * 32)):
        assert remote_server.parse_pin(text) == digits
    with pytest.raises(UsageError):
        remote_server.parse_pin("sha256:12")


# -- the outbox


class Idle:
    """A forwarder that sends nothing."""

    def __init__(self, *args: Any) -> None: ...

    def start(self) -> None: ...


def admitted(
    b: Bench, monkeypatch: pytest.MonkeyPatch, bytes_max: int = 1 << 20
) -> tuple[Outbox, Entry]:
    monkeypatch.setattr(sender, "Forwarder", Idle)
    outbox = Outbox(b.paths, b.store, bytes_max)
    asyncio.run(outbox.admit(b.job.uuid, "head:10200"))
    (entry,) = outbox.entries("head:10200")
    return outbox, entry


def keep(outbox: Outbox, b: Bench, *parts: Part) -> bytes:
    body = batch.encode(b.key, list(parts), 1)
    asyncio.run(outbox.keep(b.key, body, list(parts)))
    return body


def test_batches_wait_in_order_and_outlive_the_server(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, _ = admitted(b, monkeypatch)
    bodies = [keep(outbox, b, Part("stdout-0", "raw", i * 3, b"abc")) for i in range(3)]
    keep(outbox, b, Part("stdout-0", "raw", 9, b""))  # a question for the position
    later = Outbox(b.paths, b.store)
    (entry,) = later._load()
    later._add(entry)
    assert [later.read(entry, number) for number in later.waiting(entry)] == bodies
    later.sent(entry, later.waiting(entry)[0])
    assert later.waiting(entry) == [1, 2]
    later.set_aside(entry, 1)
    later.sent(entry, 2)
    later.finish(entry)
    assert (
        later.idle and (entry.folder / "refused" / "000000000001.batch").read_bytes() == bodies[1]
    )


def test_a_full_outbox_makes_agents_wait(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox, entry = admitted(b, monkeypatch, bytes_max=400)
    keep(outbox, b, Part("stdout-0", "raw", 0, b"x" * 100))
    with pytest.raises(UnreachableError, match="full"):
        keep(outbox, b, Part("stdout-0", "raw", 100, b"x" * 300))
    outbox.sent(entry, outbox.waiting(entry)[0])
    keep(outbox, b, Part("stdout-0", "raw", 100, b"x" * 100))


def test_jobs_without_a_monitor_leave_no_trace(b: Bench) -> None:
    outbox = Outbox(b.paths, b.store)
    keep(outbox, b, Part("stdout-0", "raw", 0, b"abc"))
    assert outbox.idle and not b.paths.outbox.exists()


# -- forwarding


class Sender(sender.Forwarder):
    """Sends into a list; positions are those of a monitor that has lost some data."""

    def __init__(self, position: int) -> None:
        self.position, self.posts = position, list[bytes]()

    def _post(self, route: str, client: Any = None, **more: Any) -> Response:
        self.posts.append(more["body"])
        return Response(200, {}, json.dumps({"acks": {}}).encode())


def test_what_a_monitor_has_lost_is_told_to_it_as_a_gap(b: Bench) -> None:
    sender = Sender(40)
    body = batch.encode(
        b.key, [Part("stdout-0", "raw", 100, b"abc"), Part("stdout-0", "raw", 103, b"d")], 1
    )
    sender._fill_gaps(body, {"acks": {"stdout-0": 40}})
    told, again = sender.posts
    (gap,) = batch.decode(told)[2]
    assert (gap.stream, gap.kind, gap.offset) == ("stdout-0", "gap", 40)
    assert json.loads(bytes(gap.data))["bytes"] == 60 and again == body
    sender.posts.clear()
    sender._fill_gaps(body, {"acks": {"stdout-0": 104}})
    assert not sender.posts


def test_the_end_of_a_job_is_not_told_while_its_batches_wait(b: Bench) -> None:
    b.job.state, b.job.ended_ns, b.job.exit_code = State.FAILED, 5, 1
    b.job.attempts = [Attempt(1, State.FAILED, f"{b.job.uuid}-1", exit_code=1, ended_ns=5)]
    told = sender.document(b.job, still_open=True)
    assert (told["state"], told["ended_ns"], told["exit_code"]) == ("running", None, None)
    assert told["attempts"][0]["state"] == "running"
    told = sender.document(b.job, still_open=False)
    assert (told["state"], told["exit_code"], told["attempts"][0]["state"]) == (
        "failed",
        1,
        "failed",
    )
    assert told["spec"]["rlimits"] == {} and told["spec"]["monitor"] is None


class Teller(sender.Forwarder):
    """Sends into lists; what it is asked to look at is real."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox, self._address = outbox, "head:10200"  # type: ignore[assignment]
        self.wake, self.dirty, self._stopped = threading.Event(), True, threading.Event()
        self._told, self.states = {}, list[str]()

    def _post(self, route: str, client: Any = None, **more: Any) -> Response:
        self.states += [more["json"]["state"]] if "json" in more else []
        return Response(200, {}, json.dumps({"acks": {}}).encode())


def test_an_end_that_was_held_back_for_the_last_batches_is_told_in_the_round_after_them(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, _ = admitted(b, monkeypatch)
    keep(outbox, b, Part("stdout-0", "raw", 0, b"last words"))
    # its agent has not signed off yet
    monkeypatch.setattr(catalog, "any_may_send", lambda c, uuid: True)

    def end(c: Any) -> None:
        catalog.set_job_state(c, b.job.pk, State.RUNNING, 10)
        catalog.set_job_state(c, b.job.pk, State.SUCCEEDED, 20, exit_code=0, ended_ns=20)
        catalog.set_attempt(c, b.job.pk, 1, state=State.SUCCEEDED, exit_code=0, ended_ns=20)

    b.write(end)
    teller = Teller(outbox)
    teller._round()
    # nobody waits for the next idle look
    assert teller.states == ["running"] and teller.wake.is_set()
    teller.wake.clear()
    teller._round()
    assert teller.states == ["running", "succeeded"] and not teller.wake.is_set()


# -- guests


def told(state: str, since_ns: int) -> guests.Told:
    import msgspec

    attempt = {"number": 1, "state": state, "tasks": [{"name": "worker-0"}]}
    return msgspec.convert(
        {
            "uuid": "00000000-0000-4000-8000-00000000000a", "id": "far-0000a", "state": state,
            "state_since_ns": since_ns, "submitted_ns": 1, "attempts": [attempt],
            "spec": {"command": ["true"], "cwd": "/", "name": "far", "host": "node", "unheard_of": 1},
        },
        guests.Told,
    )  # fmt: skip


def tell(b: Bench, state: str, since_ns: int = 10) -> Any:
    said = told(state, since_ns)
    return b.write(lambda c: guests.tell(c, "node", said, guests.spec_of(said, "node")))


def test_a_guest_keeps_its_id_and_takes_every_state_that_its_machine_tells(b: Bench) -> None:
    assert tell(b, "waiting").id == "far-0000a"
    for state in (
        "running",
        "stopping",
        "running",
        "held",
        "waiting",
        "held",
        "failed",
        "running",
        "succeeded",
    ):
        found = tell(b, state)
    assert found.state is State.FAILED, "an end stays an end"
    assert found.spec.guest_of == "node" and found.spec.host == "node"


def test_a_guest_that_is_not_heard_of_is_unknown_until_it_is_told_again(b: Bench) -> None:
    now_s = [0.0]
    listed = guests.Guests(b.store, lambda: now_s[0])
    job = tell(b, "running")
    listed.told(job.uuid, "node")
    now_s[0] = SILENT_AFTER_S - 1
    b.write(listed._silence)
    assert tell(b, "running").state is State.RUNNING
    assert listed.heard([job.uuid], "node") == [] and listed.heard([job.uuid], "other") == [
        job.uuid
    ]
    now_s[0] += SILENT_AFTER_S + 1
    b.write(listed._silence)
    assert _state(b, job.pk) is State.UNKNOWN
    assert listed.heard([job.uuid], "node") == [job.uuid], "its machine is asked to tell it again"
    listed.told(job.uuid, "node")
    assert tell(b, "running").state is State.RUNNING


def test_a_home_without_open_guests_has_nobody_to_look_for(b: Bench) -> None:
    new_job(b.store, "here", experiment='"guest_of":"node"')
    assert not b.read(catalog.has_guests)
    tell(b, "running")
    assert b.read(catalog.has_guests)
    tell(b, "failed")
    assert not b.read(catalog.has_guests)


def _state(b: Bench, pk: int) -> State:
    return b.read(catalog.load_job, pk).state
