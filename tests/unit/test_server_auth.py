"""Roles, tokens, sessions and the count of wrong ones, with a clock of the test's own."""

import asyncio

from headway.model.limits import (
    LOGIN_CODE_S,
    LOGIN_CODES_MAX,
    TOKEN_CACHE_S,
    TOKENS_CACHED_MAX,
    WRONG_TOKENS_MAX,
    WRONG_TOKENS_S,
)
from headway.server.http.auth import (
    Caller,
    Expiring,
    Failures,
    Role,
    TokenRow,
    Tokens,
    digest,
    mint,
)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Rows:
    """A store of tokens that counts how often it is asked."""

    def __init__(self) -> None:
        self.rows: dict[str, TokenRow] = {}
        self.asked: list[str] = []

    def add(self, role: Role = Role.READ, ended: bool = False) -> str:
        token_id, token, hashed = mint()
        self.rows[token_id] = TokenRow(hashed, role, None, ended)
        return token

    async def __call__(self, token_id: str) -> TokenRow | None:
        self.asked.append(token_id)
        return self.rows.get(token_id)


def test_a_role_includes_those_below_but_reading_does_not_include_writing() -> None:
    may = {(have, need) for have in Role for need in Role if Caller(have).may(need)}
    assert (
        (Role.ADMIN, Role.OPERATE) in may
        and (Role.OPERATE, Role.READ) in may
        and (Role.ADMIN, Role.INGEST) in may
    )
    assert (Role.READ, Role.INGEST) not in may and (Role.OPERATE, Role.INGEST) not in may
    assert (Role.INGEST, Role.READ) not in may and (Role.READ, Role.OPERATE) not in may
    assert all((Role.NOBODY, need) not in may for need in Role if need)


def test_tokens_are_all_different_and_long() -> None:
    tokens = {mint()[1] for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(len(token.partition(".")[2]) == 43 for token in tokens)


def test_only_the_right_secret_of_an_open_token_passes() -> None:
    rows = Rows()
    tokens = Tokens(rows)
    right, ended = rows.add(), rows.add(ended=True)
    token_id, _, secret = right.partition(".")
    assert asyncio.run(tokens.check(right)) is not None
    for wrong in (
        ended,
        f"{token_id}.{secret[::-1]}",
        f"{ended[:16]}.{secret}",
        f"nobody.{secret}",
        "",
        secret,
    ):
        assert asyncio.run(tokens.check(wrong)) is None, wrong


def test_a_token_is_remembered_for_a_while_and_forgotten_when_a_job_changes() -> None:
    rows, clock = Rows(), Clock()
    tokens = Tokens(rows, clock)
    token = rows.add()
    token_id = token.partition(".")[0]
    for _ in range(5):
        asyncio.run(tokens.check(token))
    assert rows.asked == [token_id]
    rows.rows[token_id] = TokenRow(rows.rows[token_id].hash, Role.READ, None, ended=True)
    assert asyncio.run(tokens.check(token)) is not None
    tokens.forget()
    assert asyncio.run(tokens.check(token)) is None
    clock.now_s += TOKEN_CACHE_S + 1
    asyncio.run(tokens.check(token))
    assert len(rows.asked) == 3


def test_a_token_that_ends_while_it_is_looked_up_is_not_remembered() -> None:
    rows = Rows()
    token = rows.add()

    async def slow(token_id: str) -> TokenRow | None:
        row = await rows(token_id)
        tokens.forget()
        return row

    tokens = Tokens(slow)
    asyncio.run(tokens.check(token))
    asyncio.run(tokens.check(token))
    assert len(rows.asked) == 2


def test_the_memory_of_tokens_is_bounded_and_strangers_cannot_fill_it() -> None:
    rows = Rows()
    tokens = Tokens(rows)
    for n in range(100):
        asyncio.run(tokens.check(f"made-up-{n}.{'x' * 43}"))
    assert not tokens._known
    for _ in range(TOKENS_CACHED_MAX + 10):
        asyncio.run(tokens.check(rows.add()))
    assert len(tokens._known) == TOKENS_CACHED_MAX


def test_a_code_works_once_and_not_for_long() -> None:
    clock = Clock()
    codes = Expiring(LOGIN_CODES_MAX, LOGIN_CODE_S, clock)
    code = codes.give(Role.OPERATE)
    assert codes.take("x" * 43) is Role.NOBODY
    assert codes.take(code) is Role.OPERATE
    assert codes.take(code) is Role.NOBODY
    late = codes.give(Role.ADMIN)
    clock.now_s += LOGIN_CODE_S
    assert codes.take(late) is Role.NOBODY


def test_codes_are_kept_as_hashes_and_only_so_many() -> None:
    codes = Expiring(3, 60.0)
    given = [codes.give(Role.READ) for _ in range(5)]
    assert [codes.role(code) for code in given] == [Role.NOBODY] * 2 + [Role.READ] * 3
    assert all(code.encode() not in key for code in given for key in codes._known)
    assert digest(given[-1]) in codes._known


def test_wrong_tokens_are_counted_over_a_window() -> None:
    clock = Clock()
    failures = Failures(clock)
    assert [failures.too_many() for _ in range(WRONG_TOKENS_MAX + 2)] == [
        False
    ] * WRONG_TOKENS_MAX + [True] * 2
    clock.now_s += WRONG_TOKENS_S + 1
    assert not failures.too_many()
