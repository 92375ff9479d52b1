"""The central monitor of this home: where it listens, its certificate, and the addresses that
others can use.

`hw monitor` writes `monitor.json` and makes the certificate; the server reads both when it starts.
The certificate is made by `openssl`, self-signed: clients pin it, so nobody has to vouch for it.
Standard library only.
"""

import fcntl
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headway.home.paths import Paths, private_folder
from headway.home.remote_server import Address, parse
from headway.model.errors import UsageError
from headway.wire.pin import fingerprint

CERTIFICATE_DAYS: Final = 3650  # clients look at the pin, not at the clock
_OPENSSL_S: Final = 30.0
_SIOCGIFADDR: Final = 0x8915
_NAMES_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Listen:
    """Where the monitor listens. `names`: further names, with or without a port, by which others
    reach it.
    """

    address: Address
    names: list[str] = field(default_factory=list)


def load(paths: Paths) -> Listen | None:
    """None: this home's server is no monitor."""
    try:
        found = json.loads(paths.monitor_json.read_text())
        return Listen(
            parse(found["address"], str(paths.monitor_json), listening=True), list(found["names"])
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{paths.monitor_json} cannot be read: {error}", "type: hw monitor --address :PORT"
        ) from None


def save(paths: Paths, listen: Listen) -> None:
    text = json.dumps({"address": str(listen.address), "names": listen.names})
    _put(paths.monitor_json, text.encode())


def _put(path: Path, data: bytes) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    os.replace(draft, path)


# -- addresses


def interfaces(bridges: bool = True) -> list[str]:
    """Addresses of this machine that others may reach, IPv4 first; loopback and link-local ones are
    left out. Without `bridges`, also those of networks that lie inside this machine, for
    containers.
    """
    found = [*_interfaces_v4(bridges), *_interfaces_v6()]
    if not found:  # not Linux
        try:
            rows = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
            found = [str(row[4][0]) for row in rows]
        except OSError:
            found = []
    usable = [a for a in found if not a.startswith(("127.", "169.254.", "fe80:")) and a != "::1"]
    return list(dict.fromkeys(usable))


def _interfaces_v4(bridges: bool) -> list[str]:
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            if not bridges and os.path.exists(f"/sys/class/net/{name}/bridge"):
                continue
            try:
                answer = fcntl.ioctl(
                    probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15])
                )
            except OSError:
                continue  # it has none
            found.append(socket.inet_ntoa(answer[20:24]))
    return found


def _interfaces_v6() -> list[str]:
    try:
        with open("/proc/net/if_inet6") as file:
            return [
                socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line.split()[0])) for line in file
            ]
    except (OSError, ValueError):
        return []


def in_container() -> bool:
    """A container's addresses are mostly its own: the port must be published by its host."""
    return os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv")


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def addresses(listen: Listen) -> list[str]:
    """What to type on another machine, most useful first."""
    given, port = listen.address, listen.address.port
    names = [name if ":" in name else f"{name}:{port}" for name in listen.names]
    everywhere = given.host in ("", "0.0.0.0", "::")  # noqa: S104  (said by the person who listens)
    hosts = interfaces() if everywhere else [given.host]
    if given.host == "0.0.0.0":  # noqa: S104
        hosts = [host for host in hosts if ":" not in host]
    if everywhere:
        hosts.append(socket.gethostname().lower())
    return list(dict.fromkeys([*names, *(str(Address(host, port)) for host in hosts)]))


def hosts(listen: Listen) -> frozenset[str]:
    """The exact Host headers that the guard lets in on the network address."""
    port = listen.address.port
    own = (
        f"localhost:{port}",
        f"127.0.0.1:{port}",
        f"[::1]:{port}",
        f"{socket.getfqdn().lower()}:{port}",
    )
    return frozenset({*(name.lower() for name in addresses(listen)), *own})


# -- the certificate


def pin(paths: Paths) -> str:
    """The pin of the certificate that is there. Raises UsageError when there is none."""
    try:
        return fingerprint(ssl.PEM_cert_to_DER_cert((paths.tls / "cert.pem").read_text()))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"there is no certificate: {error}", "type: hw monitor --address :PORT"
        ) from None


def ensure_certificate(paths: Paths, listen: Listen, renew: bool = False) -> str:
    """Make key and certificate unless they are there; the pin. The key is for its owner alone from
    the first moment.
    """
    folder = private_folder(paths.tls)
    if not renew and (folder / "cert.pem").exists() and (folder / "key.pem").exists():
        return pin(paths)
    openssl = shutil.which("openssl")
    if openssl is None:
        raise UsageError(
            "no openssl is here to make the certificate",
            "install it, for example: apt-get install openssl",
        )
    draft = folder / f".draft-{os.getpid()}"
    key, certificate = draft.with_suffix(".key"), draft.with_suffix(".pem")
    os.close(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600))
    try:
        done = subprocess.run(
            [openssl, *_request(listen), "-keyout", str(key), "-out", str(certificate)],
            check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=_OPENSSL_S,
        )  # fmt: skip
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise UsageError(
                f"openssl could not make the certificate: {said[-1] if said else done.returncode}"
            )
        os.chmod(key, 0o600)
        os.replace(key, folder / "key.pem")
        os.replace(certificate, folder / "cert.pem")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"the certificate could not be made in {folder}: {error}") from None
    finally:
        for left in (key, certificate):
            left.unlink(missing_ok=True)
    return pin(paths)


def _request(listen: Listen) -> list[str]:
    """openssl's words for a self-signed certificate with every name and address by which others may
    call us.
    """
    names = dict.fromkeys(["localhost", socket.gethostname(), socket.getfqdn()])
    numbers = dict.fromkeys(["127.0.0.1", "::1", *interfaces()])
    for text in [*listen.names, listen.address.host]:
        host = text.rpartition(":")[0] if text.count(":") == 1 else text
        (numbers if _is_number(host) else names)[host] = None
    alternatives = [f"DNS:{name}" for name in names if name and not _is_number(name)]
    alternatives += [f"IP:{number}" for number in numbers if number]
    return [
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-sha256",
        "-days", str(CERTIFICATE_DAYS), "-subj", f"/CN=headway-monitor-{int(time.time())}",
        "-addext", "subjectAltName=" + ",".join(alternatives[:_NAMES_MAX]),
    ]  # fmt: skip


def _is_number(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
            return True
        except OSError:
            continue
    return False


def server_context(paths: Paths) -> ssl.SSLContext:
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        found.load_cert_chain(paths.tls / "cert.pem", paths.tls / "key.pem")
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"the certificate in {paths.tls} cannot be used: {error}",
            "hw monitor --new-certificate",
        ) from None
    return found


def bind(address: Address) -> socket.socket:
    """Listen at `address`, or say why not. `:PORT` is every interface, IPv4 and IPv6 alike where
    there is both.
    """
    host = address.host
    try:
        if host in ("", "::"):
            try:
                return socket.create_server(
                    ("::", address.port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024
                )
            except OSError as error:
                if host or error.errno == 98:  # taken
                    raise
                host = "0.0.0.0"  # noqa: S104  (no IPv6 here)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, address.port), family=family, backlog=1024)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UsageError(
            f"cannot listen at {address}: {reason}", "choose another --address"
        ) from None
