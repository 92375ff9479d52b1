"""`hw monitor`: make this home's server one for several machines, or join the monitor of another
machine.

hw monitor --address :10200      certificate, TLS address, pin; the server goes on by itself in the background
hw monitor join HOST:PORT        on another machine: check the pin, keep address, pin and token in a 0600 file
hw monitor leave | status | stop
"""

import json
import os
import sys
from typing import Any, Final

from headway.home import paths as homes
from headway.home import remote_server
from headway.model.errors import RefusedError, UnreachableError, UsageError
from headway.model.json_types import JsonObject
from headway.settings import monitor_settings
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt
from headway.views.text.terminal import BOLD
from headway.wire.pin import pin_of

_JOIN_S: Final = 15.0


def command(call: Call) -> int:
    verbs = {"join": _join, "leave": _leave, "status": _status, "stop": _stop}
    verb = call.words[0] if call.words else ""
    if (
        call.after
        or (verb and verb not in verbs)
        or len(call.words) > (2 if verb in ("join", "leave") else 1)
    ):
        from headway.settings.nearest import did_you_mean

        found = " ".join(call.words)[:60]
        raise UsageError(
            f'hw monitor has no "{found}"{did_you_mean(verb, verbs)}',
            "hw monitor --help shows what it has",
        )
    return verbs[verb](call) if verb else _serve(call)


# -- serving


def _serve(call: Call) -> int:
    paths = homes.Paths(homes.home())
    before = monitor_settings.load(paths)
    listen = _asked(call, before)
    if before is None or before.address != listen.address:
        monitor_settings.bind(
            listen.address
        ).close()  # better told before a server is stopped for it
    monitor_settings.ensure_certificate(paths, listen, renew=bool(call.get("new_certificate")))
    changed = listen != before or bool(call.get("new_certificate"))
    monitor_settings.save(paths, listen)
    if call.get("foreground"):
        return _in_foreground(call, paths, listen)
    _tell(call, _start(call, changed))
    return 0


def _asked(call: Call, before: monitor_settings.Listen | None) -> monitor_settings.Listen:
    text = call.get("address")
    if text:
        address = remote_server.parse(text, "--address", listening=True)
    elif before is not None:
        address = before.address
    else:
        raise UsageError(
            "hw monitor needs an address to listen at", "for example: hw monitor --address :10200"
        )
    names = [name.lower() for name in call.get("hosts") or []]
    if not names and before is not None:
        names = before.names
    for name in names:
        with_port = name if ":" in name else f"{name}:1"
        remote_server.parse(with_port, "--host")
    return monitor_settings.Listen(address, names)


def _start(call: Call, changed: bool) -> JsonObject:
    """This home's server with its network address; one that listens elsewhere, or nowhere, is
    started again.
    """
    source = call.source()
    about: JsonObject = source.get("/api/server")
    if changed or not about.get("monitor") or about["monitor"].get("error"):
        _stop_server(source)
        source = call.source()
        about = source.get("/api/server")
    return about


def _stop_server(source: Any) -> None:
    from headway.views.cli.server import process_of, wait_gone

    who = process_of(source)
    source.post("/api/server/stop", {})
    source.close()
    wait_gone(source, who)


def _in_foreground(call: Call, paths: homes.Paths, listen: monitor_settings.Listen) -> int:
    from headway.home.connect import is_listening, server_path
    from headway.home.launch import server_argv, server_env

    if is_listening(server_path(paths.home)):
        raise RefusedError(f"a server already runs for {paths.home}", "type: hw server stop")
    _tell(call, {"monitor": {
        "addresses": monitor_settings.addresses(listen), "pin": f"sha256:{monitor_settings.pin(paths)}",
        "container": monitor_settings.in_container(), "listen": str(listen.address),
    }})  # fmt: skip
    argv = server_argv()
    os.chdir("/")
    os.execve(argv[0], argv, server_env(paths.home))  # noqa: S606  (our own server, in our place)


def _tell(call: Call, about: JsonObject) -> None:
    found = about.get("monitor")
    if not isinstance(found, dict):
        raise UnreachableError(
            "the server does not listen on the network", "hw server logs may say why"
        )
    if found.get("error"):
        raise UnreachableError(
            f"the server does not listen on the network: {found['error']}",
            "choose another --address",
        )
    if call.as_json:
        call.terminal.put_json(found)
        return
    put, out = call.terminal.put, call.terminal.out
    addresses = [out.safe(str(address)) for address in found["addresses"]] or [
        out.safe(str(found["listen"]))
    ]
    put(f"monitor  {addresses[0]}")
    for address in addresses[1:]:
        put(f"         {address}")
    put(f"pin      {found['pin']}")
    say, err = call.terminal.say, call.terminal.err
    if found.get("container"):
        port = str(found["listen"]).rpartition(":")[2]
        say(
            f"This is a container: its host must publish the port, such as -p {port}:{port}, and others then use the"
        )
        say(f"host's name: hw monitor --address :{port} --host NAME")
    if all(
        monitor_settings.is_loopback(address.rpartition(":")[0].strip("[]"))
        for address in addresses
    ):
        say("This address is for this machine alone; for others: hw monitor --address :10200")
    say("A token for a machine:  hw token create --name MACHINE")
    line = f"hw monitor join {addresses[0]} --pin {found['pin']}"
    say(f"There, once:            {err.style(line, BOLD)}")


def _status(call: Call) -> int:
    about = call.source(start=False).get("/api/server")
    sends = [*about.get("monitors", [])]
    if call.as_json:
        call.terminal.put_json({"monitor": about.get("monitor"), "monitors": sends})
        return 0
    out = call.terminal.out
    found = about.get("monitor")
    if found and found.get("error"):
        call.terminal.put(
            f"does not listen at {out.safe(str(found['listen']))}: {out.safe(str(found['error']))}"
        )
    elif found:
        call.terminal.put(f"listens  {', '.join(out.safe(str(a)) for a in found['addresses'])}")
        call.terminal.put(f"pin      {found['pin']}")
    for row in sends:
        words = f"{fmt.plural(row['jobs'], 'job')}, {fmt.size(row['waiting_bytes'])} to send"
        state = (
            f"waits since {row['since']}: {out.safe(str(row['error']))}"
            if row["error"]
            else "sends"
        )
        call.terminal.put(f"monitor  {out.safe(str(row['address']))}: {words}; {state}")
    for address in remote_server.known(homes.home()):
        if address not in {row["address"] for row in sends}:
            call.terminal.put(f"joined   {out.safe(address)}")
    if not found and not sends and not remote_server.known(homes.home()):
        call.terminal.say("no monitor here, and none joined; hw monitor --help tells how")
    return 0


def _stop(call: Call) -> int:
    paths = homes.Paths(homes.home())
    was = monitor_settings.load(paths) is not None
    paths.monitor_json.unlink(missing_ok=True)
    try:
        source = call.source(start=False)
        if source.get("/api/server").get("monitor"):
            _stop_server(source)
            call.source()  # this home's own jobs go on to be served
    except UnreachableError:
        pass  # none is running: the next one will not listen
    if call.as_json:
        call.terminal.put_json({"stopped": was})
    else:
        call.terminal.say(
            "no longer a monitor; jobs here go on" if was else "this home was no monitor"
        )
    return 0


# -- joining


def _join(call: Call) -> int:
    address = _address(call)
    found = _fingerprint(address)
    if call.get("pin"):
        if remote_server.parse_pin(call.get("pin")) != found:
            raise RefusedError(
                f"the certificate of {address} is not the pinned one: its pin is sha256:{found}",
                "compare it with what hw monitor status prints there; nothing was sent",
            )
    else:
        _ask_trust(call, address, found)
    token = _read_token(call, address)
    role = _try_token(address, found, token)
    path = remote_server.remember(
        homes.home(), address, found, "ingest" if role == "ingest" else "view", token
    )
    if call.as_json:
        call.terminal.put_json(
            {"address": str(address), "pin": f"sha256:{found}", "role": role, "file": str(path)}
        )
        return 0
    use = f"hw --monitor {address} " + ("run python train.py" if role == "ingest" else "ls")
    call.terminal.say(f"joined {address} with a token of role {role}, kept in {path}; now: {use}")
    return 0


def _leave(call: Call) -> int:
    address = _address(call)
    known = remote_server.forget(homes.home(), address)
    if call.as_json:
        call.terminal.put_json({"address": str(address), "known": known})
    else:
        call.terminal.say(f"{address} is forgotten" if known else f"{address} was not known")
    return 0


def _address(call: Call) -> remote_server.Address:
    if len(call.words) != 2:
        raise UsageError(
            f"hw monitor {call.words[0]} needs an address", f"hw monitor {call.words[0]} HOST:PORT"
        )
    address = remote_server.parse(call.words[1], "the address")
    if address.path:
        raise UsageError(
            f"{address} is a unix socket: there is nothing to join", f"hw --monitor {address} ls"
        )
    return address


def _fingerprint(address: remote_server.Address) -> str:
    try:
        with remote_server.open_tls(address, None, _JOIN_S) as secure:
            return pin_of(secure)
    except OSError as error:
        raise UnreachableError(
            f"no monitor answers at {address}: {error}", "is its port open from here?"
        ) from None


def _ask_trust(call: Call, address: remote_server.Address, found: str) -> None:
    if not (sys.stdin.isatty() and call.terminal.err.is_tty):
        raise UsageError(
            f"the pin of {address} must be given where nobody can be asked",
            f"--pin sha256:{found}, if that is what hw monitor status prints there",
        )
    call.terminal.say(f"{address} has the pin\n  sha256:{found}")
    call.terminal.err.write("Is that what hw monitor status prints there? [y/N] ")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise RefusedError("not joined; nothing was sent")


def _read_token(call: Call, address: remote_server.Address) -> str:
    """From the variable, the terminal without showing it, or stdin. Never from the command line:
    others can read it.
    """
    token = os.environ.get(remote_server.TOKEN_VARIABLE, "")
    if not token and sys.stdin.isatty():
        from getpass import getpass

        token = getpass(f"token for {address} (hw token create there): ")
    elif not token:
        token = sys.stdin.readline()
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or len(token) > 400:
        raise UsageError(
            "no token was given", f"for example: hw monitor join {address} --pin … < token-file"
        )
    return token


def _try_token(address: remote_server.Address, pin: str, token: str) -> str:
    """What the token is good for, as the monitor calls it."""
    from headway.views.api.monitor_client import RemoteClient
    from headway.views.api.source import error_of

    client = RemoteClient(remote_server.Way(address, pin, token))
    try:
        looked = client.request("GET", "/api/server", None, _JOIN_S)
        if looked.status == 200:
            return str(json.loads(looked.body).get("role") or "read")
        sent = client.request("POST", "/agent/guests/poll", b'{"jobs": [], "wait_s": 0}', _JOIN_S)
    finally:
        client.close()
    if sent.status == 200:
        return "ingest"
    raise error_of(sent, "the token")
