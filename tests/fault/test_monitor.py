"""The central monitor, real: two machines, a cut cable, kill -9, a changed token and certificate
(F21, F40).
"""

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headway.testing.port import reserve
from tests import needs
from tests.desk import Desk
from tests.driver import PYTHON
from tests.machines import Machine, link, stop_all
from tests.waiting import wait_until

TRAIN = """
import os, sys, time
import headway as hw
n = int(sys.argv[1])
for i in range(n):
    hw.log({"x": i}, step=i)
    print("line", i, flush=True)
    if i == n // 2:
        while not os.path.exists("go"):
            time.sleep(0.02)
print("done", flush=True)
"""


@pytest.fixture
def pair(home: Path, tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    """A monitor and another machine, on loopback."""
    needs.tool("openssl", "openssl")
    head, node = (Machine(home / name, tmp_path / name) for name in ("a", "b"))
    yield head, node
    stop_all(node, head)


def joined(head: Machine, node: Machine, port: int | None = None) -> str:
    """`node` has joined; the address of the monitor."""
    port = port or reserve()
    about = head.listen(f"127.0.0.1:{port}")
    address = f"127.0.0.1:{port}"
    node.join(address, about["pin"], head.token("node"))
    node.join(address, about["pin"], head.token("person", "operate"))
    return address


def expected(n: int) -> list[str]:
    return [*(f"line {i}" for i in range(n)), "done"]


def assert_complete(machine: Machine, job: str, n: int, *more: str) -> None:
    wait_until(lambda: machine.lines(job, *more) == expected(n), 60, f"all lines of {job}")
    rows = wait_until(
        lambda: machine.json(*more, "metrics", job, "-m", "x")[job].get("x"), 30, "the points"
    )
    assert [value for row in rows for value in row["value"]] == [float(i) for i in range(n)]


@pytest.mark.skipif(not os.path.exists("/proc/net/if_inet6"), reason="this machine has no IPv6")
def test_a_monitor_is_reached_over_ipv6_and_tells_the_role_of_a_token(
    pair: tuple[Machine, Machine],
) -> None:
    head, node = pair
    port = reserve()
    about, address = head.listen(f"[::]:{port}"), f"[::1]:{port}"
    node.join(address, about["pin"], head.token("node"))
    told = node(
        "monitor", "join", address, "--pin", about["pin"], stdin=head.token("person", "operate")
    )
    assert b"a token of role operate" in told.stderr
    assert node("--monitor", address, "run", "--name", "six", "true").returncode == 0
    wait_until(
        lambda: [one["name"] for one in node.json("--monitor", address, "ls")] == ["six"],
        what="the job there",
    )


@pytest.mark.cap(18)
def test_a_job_of_another_machine_is_shown_complete_on_the_monitor(
    pair: tuple[Machine, Machine],
) -> None:
    head, node = pair
    address = joined(head, node)
    (node.cwd / "go").touch()
    done = node("--monitor", address, "run", "--name", "train", PYTHON, node.script(TRAIN), "300")
    assert done.returncode == 0, done.stderr
    job = str(node.json("ls")[0]["id"])
    found = head.wait_ended(job)
    assert found["state"] == "succeeded" and found["exit_code"] == 0 and found["guest_of"] == "node"
    assert found["host"] == os.uname().nodename and found["command"][0] == PYTHON
    assert found["attempts"][0]["tasks"][0]["processes"][0]["exit_code"] == 0
    assert_complete(head, job, 300)
    assert_complete(node, job, 300, "--monitor", address)  # the same, from the other machine
    assert_complete(node, job, 300)  # and it is the other machine's own job as ever
    wait_until(lambda: node.sending()["jobs"] == 0, 30, "an empty outbox")
    assert not list((node.home / "outbox").iterdir())


def test_a_monitor_stops_the_job_of_another_machine(pair: tuple[Machine, Machine]) -> None:
    head, node = pair
    address = joined(head, node)
    job = node.submit("--monitor", address, PYTHON, node.script(TRAIN), "10")
    head.wait_state(job, "running")
    wait_until(lambda: "line 5" in head.lines(job), 30, "its lines")
    assert head("resubmit", job).returncode == 1  # it runs elsewhere
    # a third machine, with a terminal and no server
    person = Machine(head.home.parent / "c", head.cwd.parent / "c")
    person.join(
        address, head.json("monitor", "status")["monitor"]["pin"], head.token("person2", "read")
    )
    with closing(Desk("--monitor", address, "watch", job, HEADWAY_HOME=str(person.home))) as desk:
        desk.sees("line 5")
        assert head("abort", job).returncode == 0
        desk.sees("was stopped")
        assert desk.ends() == 0
    assert not (person.home / "server.json").exists()
    assert node.wait_ended(job)["state"] == "stopped"
    assert head.wait_ended(job)["state"] == "stopped"


def test_a_plain_script_is_shown_on_the_monitor_that_its_variable_names(
    pair: tuple[Machine, Machine],
) -> None:
    import subprocess

    head, node = pair
    address = joined(head, node)
    (node.cwd / "go").touch()
    env = node.env | {"HEADWAY_MONITOR": address}
    subprocess.run(
        [PYTHON, node.script(TRAIN), "20"],
        cwd=node.cwd,
        env=env,
        check=True,
        timeout=60,
        stdout=subprocess.PIPE,
    )
    jobs = wait_until(
        lambda: [job for job in head.json("ls") if job["state"] == "succeeded"],
        60,
        "the script's end",
    )
    assert jobs[0]["guest_of"] == "node"
    assert [
        v
        for row in head.json("metrics", jobs[0]["id"], "-m", "x")[jobs[0]["id"]]["x"]
        for v in row["value"]
    ] == [float(i) for i in range(20)]


def test_nothing_is_lost_when_the_monitor_and_the_other_server_are_killed(
    pair: tuple[Machine, Machine],
) -> None:
    head, node = pair
    address = joined(head, node)
    job = node.submit("--monitor", address, PYTHON, node.script(TRAIN), "400")
    head.wait_state(job, "running")
    head.kill_server()
    (node.cwd / "go").touch()
    # its own machine does not wait for the monitor
    assert node.wait_ended(job)["state"] == "succeeded"
    waiting = wait_until(
        lambda: node.sending().get("error") and node.sending(), 30, "a word about the monitor"
    )
    assert waiting["waiting_bytes"] > 0 and "refused" in waiting["error"].lower(), waiting
    node.kill_server()
    head("server", "start")
    node("server", "start")
    assert head.wait_ended(job)["state"] == "succeeded"
    assert_complete(head, job, 400)


def test_a_revoked_token_and_a_new_certificate_are_told_and_cost_nothing(
    pair: tuple[Machine, Machine],
) -> None:
    """F40: the job is not restarted; what waits goes on once the file has been brought up to date."""
    head, node = pair
    address = joined(head, node)
    job = node.submit("--monitor", address, PYTHON, node.script(TRAIN), "100")
    head.wait_state(job, "running")
    for row in head.json("token", "ls"):
        assert head("token", "revoke", row["id"]).returncode == 0
    error = wait_until(lambda: node.sending().get("error"), 60, "the refusal")
    assert "401" in error and "revoked" in error and f"hw monitor join {address}" in error
    pin = head.json("monitor", "--new-certificate")["pin"]
    error = wait_until(
        lambda: (e := node.sending().get("error")) and "pin" in e and e, 60, "the wrong pin"
    )
    assert pin in error and "not the pinned one" in error
    (node.cwd / "go").touch()
    assert node.wait_ended(job)["state"] == "succeeded"
    node.join(address, pin, head.token("node"))
    assert head.wait_ended(job)["state"] == "succeeded"
    assert_complete(head, job, 100)
    assert b"cannot be sent to" in (node.home / "server.log").read_bytes()


def test_a_machine_joins_only_with_the_right_pin_and_a_token_of_its_own(
    pair: tuple[Machine, Machine],
) -> None:
    head, node = pair
    port = reserve()
    about = head.listen(f"127.0.0.1:{port}")
    address, token = f"127.0.0.1:{port}", head.token("node")
    assert stat.S_IMODE((head.home / "tls" / "key.pem").stat().st_mode) == 0o600
    wrong = node("monitor", "join", address, "--pin", "sha256:" + "0" * 64, stdin=token)
    assert wrong.returncode == 1 and b"not the pinned one" in wrong.stderr
    unasked = node("monitor", "join", address, stdin=token)
    assert unasked.returncode == 2 and b"--pin" in unasked.stderr
    stranger = node(
        "monitor", "join", address, "--pin", about["pin"], stdin="0123456789abcdef." + "x" * 43
    )
    assert stranger.returncode != 0 and b"token" in stranger.stderr
    assert not (node.home / "monitors.json").exists()
    unknown = node("--monitor", address, "run", "true")
    assert unknown.returncode == 125 and b"has not joined" in unknown.stderr
    node.join(address, about["pin"], token)
    assert stat.S_IMODE((node.home / "monitors.json").stat().st_mode) == 0o600
    assert node("--monitor", address, "ls").returncode == 2  # this token sends; it does not look
    plain = reserve()
    gone = node("monitor", "join", f"127.0.0.1:{plain}", "--pin", about["pin"], stdin=token)
    assert gone.returncode == 4 and b"no monitor answers" in gone.stderr


def test_a_port_that_is_taken_is_told_and_does_not_keep_the_home_from_being_served(
    pair: tuple[Machine, Machine],
) -> None:
    import socket

    head, _ = pair
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        taken = head("monitor", "--address", f"127.0.0.1:{port}")
        assert taken.returncode == 2 and b"already in use" in taken.stderr
    assert head.listen(f"127.0.0.1:{port}")["error"] is None
    head("server", "stop")
    with socket.create_server(("127.0.0.1", port)):
        assert head("run", "true").returncode == 0
        assert "already in use" in head.json("monitor", "status")["monitor"]["error"]
    assert head.json("monitor")["error"] is None


def test_a_unix_socket_is_a_monitor_too(pair: tuple[Machine, Machine]) -> None:
    head, node = pair
    path = str(head.json("server", "start")["address"])
    (node.cwd / "go").touch()
    done = node("--monitor", path, "run", PYTHON, node.script(TRAIN), "10")
    assert done.returncode == 0, done.stderr
    job = str(node.json("ls")[0]["id"])
    assert head.wait_ended(job)["state"] == "succeeded"
    assert_complete(node, job, 10, "--monitor", path)


def test_two_machines_lose_nothing_over_a_cable_that_is_cut(home: Path, tmp_path: Path) -> None:
    needs.tool("openssl", "openssl")
    with link() as cable:
        head = Machine(home / "a", tmp_path / "a", cable.names[0])
        node = Machine(home / "b", tmp_path / "b", cable.names[1])
        try:
            about = head.listen(":10200")
            address = f"{cable.HOSTS[0]}:10200"
            assert address in about["addresses"]
            node.join(address, about["pin"], head.token("node"))
            node.join(address, about["pin"], head.token("person", "read"))
            job = node.submit("--monitor", address, PYTHON, node.script(TRAIN), "500")
            wait_until(lambda: "line 250" in head.lines(job), 60, "lines over the cable")
            cable.cut()
            (node.cwd / "go").touch()
            assert node.wait_ended(job)["state"] == "succeeded"
            assert node.sending()["waiting_bytes"] > 0
            assert "done" not in head.lines(job) and head.json("q", job)["state"] in (
                "running",
                "unknown",
            )
            head.kill_server()
            head("server", "start")
            cable.mend()
            assert head.wait_ended(job, 120)["state"] == "succeeded"
            assert_complete(head, job, 500)
            assert_complete(node, job, 500, "--monitor", address)
        finally:
            stop_all(node, head)
