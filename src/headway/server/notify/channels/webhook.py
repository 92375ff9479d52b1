"""Tells a web address: one POST of the facts as JSON, only to hosts that a person has allowed.

Redirects are not followed and proxies are not asked, so nothing goes anywhere else. The address
itself is taken for a secret, since many services put one into it: only its host is ever shown.
Called by `notifier.py`.
"""

import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterable
from urllib.parse import urlsplit

from headway import __version__
from headway.model.json_types import JsonMapping
from headway.model.limits import NOTICE_BYTES_MAX, NOTICE_RESULT_CHARS_MAX
from headway.server.notify.outcome import Outcome

_PORTS = {"http": 80, "https": 443}
_TRY_LATER = frozenset({408, 425, 429})


def place(url: str) -> tuple[str, int]:
    """Host and port of an address that `settings/schema.py` has checked."""
    parts = urlsplit(url)
    return (parts.hostname or "").lower(), parts.port or _PORTS[parts.scheme]


def shown(url: str) -> str:
    """The address without what may be secret in it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}/…"


def is_allowed(url: str, hosts: Iterable[str]) -> bool:
    """Whether the list names this host, or this host and port."""
    host, port = place(url)
    name = f"[{host}]" if ":" in host else host
    known = {entry.lower() for entry in hosts}
    return bool(known & {host, name, f"{name}:{port}"})


def send(url: str, hosts: Iterable[str], facts: JsonMapping, timeout_s: float) -> Outcome:
    if not is_allowed(url, hosts):
        return Outcome(False, f"the host {place(url)[0]} is not in notify.webhook_hosts")
    body = json.dumps(facts).encode()
    if len(body) > NOTICE_BYTES_MAX:
        return Outcome(False, f"larger than {NOTICE_BYTES_MAX} bytes")
    connection = _connection(url, timeout_s)
    # a timeout of a socket begins anew with every byte
    watchdog = threading.Timer(timeout_s, _cut, [connection])
    watchdog.daemon = True
    watchdog.start()
    try:
        return _post(connection, url, facts, body)
    except (OSError, http.client.HTTPException, AttributeError) as error:
        # AttributeError: http.client meets a connection that the watchdog has cut
        return Outcome(
            False, f"{type(error).__name__}: {error}"[:NOTICE_RESULT_CHARS_MAX], again=True
        )
    finally:
        watchdog.cancel()
        connection.close()


def _connection(url: str, timeout_s: float) -> http.client.HTTPConnection:
    host, port = place(url)
    if urlsplit(url).scheme == "https":
        return http.client.HTTPSConnection(
            host, port, timeout=timeout_s, context=ssl.create_default_context()
        )
    return http.client.HTTPConnection(host, port, timeout=timeout_s)


def _cut(connection: http.client.HTTPConnection) -> None:
    with contextlib.suppress(OSError, AttributeError):  # it has ended meanwhile
        connection.sock.shutdown(socket.SHUT_RDWR)


def _post(
    connection: http.client.HTTPConnection, url: str, facts: JsonMapping, body: bytes
) -> Outcome:
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"headway/{__version__}",
        "Idempotency-Key": str(facts.get("notice", ""))[:200],
        "Connection": "close",
    }
    connection.request("POST", path, body, headers)
    status = connection.getresponse().status
    if 200 <= status < 300:
        return Outcome(True, f"answered {status}")
    if 300 <= status < 400:
        return Outcome(False, f"answered {status}: redirects are not followed")
    return Outcome(False, f"answered {status}", again=status >= 500 or status in _TRY_LATER)
