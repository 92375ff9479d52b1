"""Who is calling and what they may do: roles, tokens, browser sessions. Called by the guard, and by
`api/server.py`.

A caller on the unix socket is known by its uid; everybody else by a token `id.secret`, of which
only the sha256 of the secret is kept: it has 256 random bits, so there is nothing to stretch.
Nothing here logs, raises with, or returns a secret that was wrong.
"""

import hashlib
import hmac
import json
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from headway.home.paths import write_private
from headway.model.limits import (
    LOGIN_CODE_S,
    LOGIN_CODES_MAX,
    SESSION_S,
    SESSIONS_MAX,
    TOKEN_CACHE_S,
    TOKENS_CACHED_MAX,
    WRONG_TOKENS_MAX,
    WRONG_TOKENS_S,
)

COOKIE = "headway"
_TOKEN = re.compile(r"([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]{16,256})\Z")
_NO_HASH = bytes(32)


class Role(IntEnum):
    """What a caller may do; each includes those below it, but for INGEST, which belongs to agents
    (and ADMIN) alone.
    """

    NOBODY = 0
    INGEST = 1  # append to one task, hear its commands
    READ = 2
    OPERATE = 3  # submit, stop and delete jobs
    ADMIN = 4  # the server itself


@dataclass(frozen=True, slots=True)
class Caller:
    role: Role
    task: str | None = (
        # INGEST: the only task it may speak of; None: another machine, for the jobs that it told of
        None
    )
    unix: bool = False
    name: str = ""  # of another machine's token
    way: str = ""  # how an agent came: "socket", "network" or "folder"

    def may(self, needed: Role) -> bool:
        if needed is Role.INGEST:  # a token that may only read must not be able to write
            return self.role in (Role.INGEST, Role.ADMIN)
        return self.role >= needed


NOBODY = Caller(Role.NOBODY)


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token as the store keeps it."""

    hash: bytes
    role: Role
    task: str | None
    ended: bool
    name: str = ""


# The name of the token in `browser-token`; it opens the loopback address and no other.
LOOPBACK_ONLY = "this machine's browser"


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def mint() -> tuple[str, str, bytes]:
    """A new token: (its public id, the whole token to hand out, the hash to keep)."""
    token_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    return token_id, f"{token_id}.{secret}", digest(secret)


class Tokens:
    """Checks tokens against the store, with a short memory so that an agent's posts do not each ask
    the database.

    `forget` is called when a job changes, so a token that ended with its job ends here too.
    """

    def __init__(
        self,
        lookup: Callable[[str], Awaitable[TokenRow | None]],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lookup, self._clock_s = lookup, clock_s
        self._known: OrderedDict[str, tuple[float, TokenRow]] = OrderedDict()
        self._age = 0

    def forget(self) -> None:
        self._known.clear()
        self._age += 1

    async def check(self, text: str) -> TokenRow | None:
        """The token's row if it is right and has not ended. Takes as long for a wrong secret as for
        a right one.
        """
        match = _TOKEN.match(text)
        if match is None:
            return None
        token_id, secret = match.groups()
        row = await self._row(token_id)
        same = hmac.compare_digest(digest(secret), row.hash if row else _NO_HASH)
        return row if same and row is not None and not row.ended else None

    async def _row(self, token_id: str) -> TokenRow | None:
        now_s = self._clock_s()
        known = self._known.get(token_id)
        if known is not None and now_s - known[0] < TOKEN_CACHE_S:
            return known[1]
        age = self._age
        row = await self._lookup(token_id)
        if row is None:
            # not remembered: a stranger could fill the memory with ids of his own making
            return None
        if age == self._age:  # else it may have ended while we asked
            self._known[token_id] = (now_s, row)
            if len(self._known) > TOKENS_CACHED_MAX:
                self._known.popitem(last=False)
        return row


class Expiring:
    """Secrets that we gave out and know for a while, by their hash: login codes and browser
    sessions.
    """

    def __init__(
        self, count_max: int, life_s: float, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._count_max, self._life_s, self._clock_s = count_max, life_s, clock_s
        self._known: OrderedDict[bytes, tuple[float, Role]] = OrderedDict()

    def give(self, role: Role) -> str:
        secret = secrets.token_urlsafe(32)
        self._known[digest(secret)] = (self._clock_s() + self._life_s, role)
        if len(self._known) > self._count_max:
            self._known.popitem(last=False)
        return secret

    def role(self, secret: str) -> Role:
        """Looking up a hash by a hash tells nothing about the secret through its time."""
        until_s, role = self._known.get(digest(secret), (0.0, Role.NOBODY))
        return role if self._clock_s() < until_s else Role.NOBODY

    def take(self, secret: str) -> Role:
        """As `role`, and the secret is used up."""
        role = self.role(secret)
        self._known.pop(digest(secret), None)
        return role


class Sessions(Expiring):
    """Browsers that are logged in, also after a restart of the server: their hashes lie in a private file."""

    def __init__(self, path: Path | None = None) -> None:
        super().__init__(SESSIONS_MAX, SESSION_S, time.time)
        self._path = path
        for key, until_s, role in self._load():
            self._known[key] = (until_s, role)

    def give(self, role: Role) -> str:
        secret = super().give(role)
        self._save()
        return secret

    def _load(self) -> Iterator[tuple[bytes, float, Role]]:
        if self._path is None:
            return
        try:
            for entry in json.loads(self._path.read_text())[-SESSIONS_MAX:]:
                yield bytes.fromhex(entry["hash"]), float(entry["until_s"]), Role(entry["role"])
        except (OSError, ValueError, KeyError, TypeError):
            return  # none yet, or not ours: browsers log in again

    def _save(self) -> None:
        if self._path is None:
            return
        known = [
            {"hash": key.hex(), "until_s": until_s, "role": int(role)}
            for key, (until_s, role) in self._known.items()
        ]
        write_private(self._path, json.dumps(known))


class Failures:
    """Wrong secrets on loopback, counted over a window. Right ones always pass: nobody can lock the
    owner out.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s, self._since_s, self._count = clock_s, 0.0, 0

    def too_many(self) -> bool:
        """Count one more, and tell whether it was one too many."""
        now_s = self._clock_s()
        if now_s - self._since_s > WRONG_TOKENS_S:
            self._since_s, self._count = now_s, 0
        self._count += 1
        return self._count > WRONG_TOKENS_MAX


@dataclass(slots=True)
class Auth:
    """Everything the guard asks about identity."""

    tokens: Tokens
    our_uid: int
    codes: Expiring
    sessions: Sessions
    failures: Failures

    @classmethod
    def over(
        cls,
        lookup: Callable[[str], Awaitable[TokenRow | None]],
        our_uid: int,
        sessions: Path | None = None,
    ) -> "Auth":
        return cls(
            Tokens(lookup),
            our_uid,
            Expiring(LOGIN_CODES_MAX, LOGIN_CODE_S),
            Sessions(sessions),
            Failures(),
        )
