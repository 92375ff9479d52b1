"""The outermost layer of the server: nothing reaches a route before it has passed here. Called by
uvicorn.

In this order, and without reading a body: the kind of connection (HTTP; anything else is refused),
Host, the form of the request, the method, where a browser says that it comes from, and who is
calling. No path is exempt from any of it but two kinds: a browser that has no cookie yet may post
its one-time code to `/login`, and may load the page's own files, which are the same for everybody
and hold nothing of anybody.
"""

import asyncio
import re
from base64 import b64decode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from headway.home.connect import HOST
from headway.model.limits import INGEST_BYTES_MAX, REQUEST_BYTES_ANONYMOUS_MAX, WRITE_PIECE_BYTES
from headway.server.http.auth import COOKIE, LOOPBACK_ONLY, NOBODY, Auth, Caller, Role
from headway.server.http.request import Message, Receive, Refusal, Reply, Scope, Send, reply_error
from headway.server.http.transport import PEER, Peer

CALLER = "headway.caller"  # where the routes find a `Caller` in the scope
SAFE_METHODS = frozenset({"GET"})
WITH_BODY = frozenset({"POST", "PATCH"})
METHODS = SAFE_METHODS | WITH_BODY | {"DELETE"}
# where clients of InfluxDB write to
INFLUX_PATHS = frozenset({"/write", "/api/v2/write", "/ping"})
LOGIN = ("POST", "/login")
PAGE_PATHS = frozenset(
    ("/", "/login", "/compare", "/clusters")
)  # what a browser's address bar may hold, and
PAGE_FOLDERS = ("/j/", "/assets/")  # what is directly in these
AGENT_PATHS = frozenset(("/agent/ingest", "/agent/poll"))  # all that a task needs of us
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_HOST = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9.-]{0,252}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?\Z"
)
_DRAIN_S, _DRAIN_BYTES = 1.0, 1 << 20
# an agent whose token has ended must be able to read that, however large its batch is
_DRAIN_UNIX_S = 5.0

HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        b"require-trusted-types-for 'script'; trusted-types svelte-trusted-html",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


def is_page(method: str, path: str) -> bool:
    """The page's shell and its files, which `api/page.py` serves."""
    in_folder = path.startswith(PAGE_FOLDERS) and path.count("/") == 2
    return method == "GET" and (path in PAGE_PATHS or in_folder)


def hosts_for(port: int) -> frozenset[str]:
    """What a browser may call us, and nothing else: a name that somebody else's DNS points here is
    not among them.
    """
    names = ("127.0.0.1", "localhost", "[::1]")
    return frozenset(f"{n}:{port}" for n in names) | (
        frozenset(names) if port == 80 else frozenset()
    )


def parse_host(value: str) -> str | None:
    """`name`, `name:port`, `[v6]` or `[v6]:port` in lower case; None for anything else, a trailing
    dot included.
    """
    lowered = value.lower()
    return lowered if _HOST.match(lowered) else None


@dataclass(frozen=True, slots=True)
class Head:
    """The headers of a request that the guard looks at. None of them may come twice."""

    host: str
    authorization: str | None
    cookie: str | None
    origin: str | None
    site: str | None
    mode: str | None
    content_length: int
    has_body: bool


_ONCE = {
    b"host": "host",
    b"authorization": "authorization",
    b"cookie": "cookie",
    b"origin": "origin",
    b"sec-fetch-site": "site",
    b"sec-fetch-mode": "mode",
    b"content-length": "length",
    b"transfer-encoding": "chunked",
    b"content-encoding": "encoding",
    b"upgrade": "upgrade",
}


def read_head(headers: list[tuple[bytes, bytes]]) -> Head:
    found: dict[str, str] = {}
    for name, value in headers:
        key = _ONCE.get(name)
        if key is None:
            continue
        if key in found:
            raise Refusal(400, "usage", f"two headers {name.decode()}")
        found[key] = value.decode("latin-1").strip()
    if "upgrade" in found:
        raise Refusal(400, "usage", "there is no protocol to change to")
    if found.get("encoding", "identity").lower() != "identity":
        raise Refusal(415, "usage", "a compressed request is not read")
    if found.get("chunked", "chunked").lower() != "chunked":
        raise Refusal(400, "usage", "a transfer encoding that is not read")
    host = parse_host(found.get("host", ""))
    if host is None:
        raise Refusal(400, "usage", "the request needs one valid Host")
    length = found.get("length", "0")
    if not (length.isascii() and length.isdigit()) or len(length) > 18:
        raise Refusal(400, "usage", "the Content-Length is not a number")
    return Head(
        host,
        found.get("authorization"),
        found.get("cookie"),
        found.get("origin"),
        found.get("site"),
        found.get("mode"),
        int(length),
        int(length) > 0 or "chunked" in found,
    )


def check_origin(method: str, head: Head, unix: bool, scheme: str = "http") -> None:
    """A page of another site may not act for the person whose browser shows it (Sec4).

    A foreign Origin is refused whatever else is there. What may change something and carries a
    cookie, which a browser adds by itself, must moreover show that it comes from our own page. A
    token alone is added by nobody but its owner.
    """
    foreign = Refusal(403, "origin", "a request from another site")
    if head.origin is not None and head.origin != f"{scheme}://{head.host}":
        raise foreign
    from_elsewhere = head.site not in (None, "same-origin", "none")
    # a link from elsewhere may lead here; a script from elsewhere may not ask in our name
    if method in SAFE_METHODS:
        if from_elsewhere and head.cookie is not None and head.mode != "navigate":
            raise foreign
        return
    if from_elsewhere:
        raise foreign
    if head.cookie is not None and head.site is None and head.origin is None and not unix:
        raise Refusal(403, "origin", "the request does not say where it comes from")


def bearer(value: str, path: str) -> str:
    """The token in an Authorization header. On the addresses of InfluxDB its clients write `Token …`,
    or give it as the password.
    """
    scheme, _, token = value.partition(" ")
    if scheme.lower() == "bearer":
        return token
    if path not in INFLUX_PATHS:
        return ""
    if scheme.lower() == "token":
        return token
    if scheme.lower() == "basic":
        try:
            return b64decode(token, validate=True).decode("ascii").partition(":")[2]
        except (ValueError, UnicodeDecodeError):
            return ""
    return ""


def session(cookie: str | None) -> str:
    pairs = (part.strip().partition("=") for part in (cookie or "").split(";"))
    return next((value for name, _, value in pairs if name == COOKIE), "")


class Guard:
    """Wraps the application. `tcp_hosts` is empty until the port is known, and then nobody is let
    in on TCP. `tls_hosts`: the names of a monitor's network address; empty where there is none.
    """

    def __init__(
        self,
        app: App,
        auth: Auth,
        tcp_hosts: frozenset[str],
        tls_hosts: frozenset[str] = frozenset(),
    ) -> None:
        self.app, self.auth, self.tcp_hosts, self.tls_hosts = app, auth, tcp_hosts, tls_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await refuse_other(scope, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            scope[CALLER] = await self._admit(scope)
        except Refusal as refusal:
            reply = reply_error(refusal.status, refusal.code, refusal.message, refusal.hint)
            peer = scope.get(PEER)
            await send_reply(reply, send, drain=receive, unix=isinstance(peer, Peer) and peer.unix)
            return
        await self.app(scope, receive, send)

    def _hosts_for(self, peer: Peer) -> frozenset[str]:
        """The names by which this server may be called on the way that `peer` came."""
        if peer.unix or peer.agents:
            return frozenset({HOST})
        return self.tls_hosts if peer.tls else self.tcp_hosts

    async def _admit(self, scope: Scope) -> Caller:
        peer, method = scope.get(PEER), scope["method"]
        if not isinstance(peer, Peer):
            raise Refusal(403, "forbidden", "a connection of an unknown kind")
        head = read_head(scope["headers"])
        if head.host not in self._hosts_for(peer):
            hint = (
                "it is not a name that this monitor knows; there: hw monitor --address … --host NAME"
                if peer.tls
                else ""
            )
            raise Refusal(400, "usage", "the Host is not this server", hint)
        if method not in METHODS:
            raise Refusal(405, "usage", "the method is not known here")
        if method not in WITH_BODY and head.has_body:
            raise Refusal(400, "usage", "only POST and PATCH have a body")
        check_origin(method, head, peer.unix, "https" if peer.tls else "http")
        # on the network nothing is done without a token, not even a login
        local = not peer.unix and not peer.tls
        if (method, scope["path"]) == LOGIN and local:
            caller = NOBODY
        else:
            caller = await self._login_for(scope, peer, head)
        if peer.agents and scope["path"] not in AGENT_PATHS:
            raise Refusal(403, "forbidden", "this is not reached through the address for agents")
        if head.content_length > (INGEST_BYTES_MAX if caller.role else REQUEST_BYTES_ANONYMOUS_MAX):
            raise Refusal(413, "too_large", "the request is too large")
        return caller

    async def _login_for(self, scope: Scope, peer: Peer, head: Head) -> Caller:
        """As `_login`; but a browser whose cookie is missing or too old still gets the page, which then says so."""
        try:
            return await self._login(peer, head, scope["path"])
        except Refusal as refusal:
            browser = head.authorization is None and not peer.unix and not peer.agents
            if refusal.status == 401 and browser and is_page(scope["method"], scope["path"]):
                return NOBODY
            raise

    async def _login(self, peer: Peer, head: Head, path: str) -> Caller:
        """On our socket the owner needs nothing more; a token is good everywhere, a browser's
        session on a plain address of this machine.
        """
        has_peer_uid = peer.unix and not peer.token_only
        if has_peer_uid and peer.uid != self.auth.our_uid:
            raise Refusal(403, "forbidden", "this server belongs to another user")

        if head.authorization is not None:
            caller = await self._login_by_token(peer, head.authorization, path)
            if caller is not None:
                return caller
        elif has_peer_uid:
            return Caller(Role.ADMIN, unix=True)
        elif not peer.unix and not peer.tls:
            role = self.auth.sessions.role(session(head.cookie))
            if role is not Role.NOBODY:
                return Caller(role)
        guessed = head.authorization is not None or head.cookie is not None
        raise self.wrong(peer, guessed=guessed)

    async def _login_by_token(self, peer: Peer, authorization: str, path: str) -> Caller | None:
        row = await self.auth.tokens.check(bearer(authorization, path))
        if row is None:
            return None
        if row.name == LOOPBACK_ONLY and (peer.tls or peer.token_only):
            return None
        if peer.agents:
            is_of_task = row.role is Role.INGEST and row.task is not None
            if not is_of_task:
                return None
        way = "socket" if peer.unix else "network"
        return Caller(row.role, row.task, peer.unix, row.name, way)

    def wrong(self, peer: Peer, guessed: bool) -> Refusal:
        """What a missing or wrong secret gets. A unix peer is the owner already and has nothing to
        guess.
        """
        if guessed and not peer.unix and self.auth.failures.too_many():
            return Refusal(429, "slow_down", "too many wrong tokens")
        if peer.agents:
            return Refusal(
                401,
                "login",
                "only the token of a task counts here, and this one is none, or has ended",
            )
        if peer.tls:
            words = (
                "the token is not known here, or was revoked" if guessed else "a token is needed"
            )
            return Refusal(
                401,
                "login",
                words,
                "on the monitor's machine: hw token create; here: hw monitor join",
            )
        return Refusal(401, "login", "a token is needed", "on this machine, `hw` needs none")


async def refuse_other(scope: Scope, send: Send) -> None:
    """A websocket is refused before it is accepted; there are none yet. Any other kind is simply
    not served.
    """
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": "not served"})


async def send_reply(
    reply: Reply, send: Send, drain: Receive | None = None, unix: bool = False
) -> None:
    """Send with the headers that every answer has, in pieces. `drain`: the request's body was not
    read; the connection closes, after a moment in which the caller can finish sending and read why:
    a longer one for our own user.
    """
    length = (b"content-length", str(len(reply.body)).encode())
    own = {name for name, _ in reply.headers}
    standard = [header for header in HEADERS if header[0] not in own]
    headers = [(b"content-type", reply.content_type), length, *standard, *reply.headers]
    if drain is not None:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    view = memoryview(reply.body)
    for start in range(0, len(view) - WRITE_PIECE_BYTES, WRITE_PIECE_BYTES):
        await send(_body(view[start : start + WRITE_PIECE_BYTES], more=True))
    last = view[max(0, (len(view) - 1) // WRITE_PIECE_BYTES * WRITE_PIECE_BYTES) :]
    if drain is not None:
        await send(_body(last, more=True))
        await _drain(drain, patient=unix and reply.status != 413)
        last = view[:0]
    await send(_body(last, more=False))


def _body(piece: memoryview, more: bool) -> Message:
    return {"type": "http.response.body", "body": piece, "more_body": more}


async def _drain(receive: Receive, patient: bool) -> None:
    """A socket closed with unread bytes in it takes the answer away from the caller."""
    left = INGEST_BYTES_MAX if patient else _DRAIN_BYTES
    try:
        async with asyncio.timeout(_DRAIN_UNIX_S if patient else _DRAIN_S):
            while left > 0:
                message: Message = await receive()
                left -= len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body"):
                    return
    except TimeoutError:
        return
