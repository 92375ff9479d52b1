"""Servers of other machines: their addresses, what this machine knows of them (pin and tokens), and
TLS to them.

Called by views that look at a monitor and by the server that sends to one. Standard library only.
Nobody's word is taken for a certificate but the pin's: it is the sha256 of the one certificate that
may answer, so no authority and no clock is needed. A monitor is known by `hw monitor join`, which
writes `monitors.json` in the home, mode 0600; the file is read at each new connection, so that a
changed token or pin is used without a restart (F40).
"""

import hmac
import http.client
import json
import os
import re
import socket
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.home.connect import Client, Response, UnixConnection
from headway.model.errors import HeadwayError, UnreachableError, UsageError
from headway.model.json_types import JsonObject
from headway.wire.pin import context, pin_of

TOKEN_VARIABLE = "HEADWAY_TOKEN"  # noqa: S105  (the name of a variable)
KNOWN_FILE = "monitors.json"
_HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?\Z")
_PIN = re.compile(r"(?:sha256:)?([0-9a-f]{64})\Z")


@dataclass(frozen=True, slots=True)
class Address:
    """`HOST:PORT`, `[v6]:PORT`, or the path of a unix socket, which has no port."""

    host: str
    port: int
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(text: str, field: str = "the monitor's address", listening: bool = False) -> Address:
    """`listening`: `:PORT` means every interface of this machine. Raises UsageError."""
    hint = "HOST:PORT, [IPV6]:PORT, or the path of a unix socket"
    host, colon, port = text.rpartition(":")
    if not colon or "/" in text:
        if not text or "\0" in text or listening:
            raise UsageError(
                f'{field}: "{text[:80]}" has no port',
                hint if not listening else ":10200 or HOST:PORT",
            )
        return Address("", 0, os.path.abspath(os.path.expanduser(text)))
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65_536):
        raise UsageError(f'{field}: "{port[:20]}" is not a port', hint)
    inner = host[1:-1] if host.startswith("[") and host.endswith("]") else None
    if inner is not None:
        try:
            socket.inet_pton(socket.AF_INET6, inner)
        except OSError:
            raise UsageError(f'{field}: "{inner[:60]}" is not an IPv6 address', hint) from None
        return Address(inner.lower(), int(port))
    if not host and not listening:
        raise UsageError(f'{field}: "{text[:80]}" has no host', hint)
    if host and not _HOST_NAME.match(host):
        raise UsageError(f'{field}: "{host[:80]}" is not the name of a host', hint)
    return Address(host.lower(), int(port))


def parse_pin(text: str) -> str:
    """The 64 digits of a pin, however a person copied them."""
    found = _PIN.match(text.strip().lower().replace(":", "").replace("sha256", ""))
    if found is None:
        raise UsageError(
            f'"{text[:80]}" is not a pin',
            "it is sha256: and 64 hexadecimal digits; hw monitor prints it",
        )
    return found[1]


# -- what is known


@dataclass(frozen=True, slots=True)
class Known:
    """A monitor that this home has joined."""

    pin: str
    tokens: dict[str, str]  # "ingest": to send jobs; "view": to look at them

    def __repr__(self) -> str:
        return f"Known({self.pin[:8]}, {sorted(self.tokens)})"


def known(home: Path) -> dict[str, Known]:
    """All monitors that this home has joined, by address."""
    return {
        name: Known(str(row["pin"]), {str(k): str(v) for k, v in row["tokens"].items()})
        for name, row in _read(home / KNOWN_FILE).items()
    }


def _read(path: Path) -> JsonObject:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise UsageError(
                f"{path} holds tokens and is open to others; it was not read",
                f"type: chmod 600 {path}",
            )
        try:
            rows = json.loads(file.read(1 << 20))
            return {
                str(k): v
                for k, v in rows.items()
                if isinstance(v["pin"], str) and isinstance(v["tokens"], dict)
            }
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(
                f"{path} is damaged", f"remove it, and type: hw monitor join HOST:PORT ({path})"
            ) from None


def remember(home: Path, address: Address, pin: str, role: str, token: str) -> Path:
    """Write down a monitor; a token of another role for the same certificate stays."""
    path = home / KNOWN_FILE
    rows = _read(path)
    before = rows.get(str(address), {})
    tokens = before["tokens"] if before.get("pin") == pin else {}
    rows[str(address)] = {"pin": pin, "tokens": tokens | {role: token}}
    _write(path, rows)
    return path


def forget(home: Path, address: Address) -> bool:
    rows = _read(home / KNOWN_FILE)
    if rows.pop(str(address), None) is None:
        return False
    _write(home / KNOWN_FILE, rows)
    return True


def _write(path: Path, rows: JsonObject) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w") as file:
        json.dump(rows, file, indent=1)
        file.flush()
        os.fsync(fd)
    os.replace(draft, path)


@dataclass(frozen=True, slots=True)
class Way:
    """How to reach a monitor now: its address, and for one on the network its pin and our token."""

    address: Address
    pin: str = ""
    token: str = ""

    def __repr__(self) -> str:
        return f"Way({self.address})"


def way_to(home: Path, address: Address, role: str) -> Way:
    """`role`: "ingest" or "view". A unix socket needs no token: the kernel says who we are."""
    if address.path:
        return Way(address)
    found = known(home).get(str(address))
    join = f"type: hw monitor join {address}"
    if found is None:
        raise UsageError(f"this home has not joined the monitor {address}", join)
    token = os.environ.get(TOKEN_VARIABLE, "") if role == "view" else ""
    token = token or found.tokens.get(role, "")
    if not token:
        wanted = "role ingest" if role == "ingest" else "role read or operate"
        raise UsageError(
            f"no token of {wanted} is known for the monitor {address}", f"{join}, with such a token"
        )
    return Way(address, found.pin, token)


# -- TLS


class PinError(UnreachableError):
    """Somebody else answers, or the monitor has a new certificate. Nothing was sent to it."""


def open_tls(address: Address, pin: str | None, timeout_s: float) -> ssl.SSLSocket:
    """A connection whose other end holds the key of the pinned certificate. `pin` None: the caller
    asks a person.

    Raises PinError, or OSError with words that say what was found.
    """
    plain = socket.create_connection((address.host, address.port), timeout_s)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        secure = context().wrap_socket(plain, server_hostname=address.host)
    except ssl.SSLError as error:
        plain.close()
        if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"):
            raise ConnectionError(
                f"what listens at {address} does not speak TLS; it is not a monitor"
            ) from None
        raise ConnectionError(f"TLS with {address} failed: {error.reason or error}") from None
    except BaseException:  # also when we are interrupted: the socket must not leak
        plain.close()
        raise
    if pin is not None and not hmac.compare_digest(pin_of(secure), pin):
        found = pin_of(secure)
        secure.close()
        raise PinError(
            f"the certificate of {address} is not the pinned one: its pin is sha256:{found}",
            f"if the monitor has a new certificate: hw monitor join {address}; else somebody stands between",
        )
    return secure


class TlsConnection(http.client.HTTPConnection):
    def __init__(self, way: Way, timeout_s: float) -> None:
        super().__init__(way.address.host, way.address.port, timeout=timeout_s)
        self.way = way

    def connect(self) -> None:
        self.sock = open_tls(self.way.address, self.way.pin, float(self.timeout or 30.0))


class RemoteClient(Client):
    """`connect.Client` to a monitor. Pin and token are looked up for each new connection."""

    def __init__(self, home: Path, address: Address, role: str, timeout_s: float = 30.0) -> None:
        super().__init__(Path(str(address)), None, timeout_s)
        self._home, self._role, self._way = home, role, Way(address)

    def _open(self, limit_s: float) -> http.client.HTTPConnection:
        path = self._way.address.path
        return UnixConnection(Path(path), limit_s) if path else TlsConnection(self._way, limit_s)

    def request(self, *args: Any, **more: Any) -> Response:
        if self._connection is None:
            self._way = way_to(self._home, self._way.address, self._role)
            self.token = self._way.token or None
        try:
            return super().request(*args, **more)
        except HeadwayError:
            self.close()
            raise
