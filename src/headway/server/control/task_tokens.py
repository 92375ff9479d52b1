"""Tokens of tasks: minted with the intent of an attempt and kept in memory alone until its end.
Called by `loop.py`.
"""

from collections.abc import Callable
from functools import partial

from headway.engines.protocol import Plan
from headway.server.control import transactions
from headway.server.http import auth
from headway.store.database import Store


class Keyring:
    def __init__(self, store: Store, clock_ns: Callable[[], int]) -> None:
        self._store, self._clock_ns = store, clock_ns
        self._tokens: dict[str, dict[str, str]] = {}  # key of the attempt -> task -> token

    def mint(self, plan: Plan) -> tuple[dict[str, str], dict[str, tuple[str, bytes]]]:
        """Tokens for the tasks of an attempt, and what is stored of them. `keep` them once that is
        done.
        """
        minted = {task.name: auth.mint() for task in plan.tasks}
        hashes = {name: (token_id, digest) for name, (token_id, _, digest) in minted.items()}
        return {name: token for name, (_, token, _) in minted.items()}, hashes

    def keep(self, key: str, tokens: dict[str, str]) -> None:
        self._tokens[key] = tokens

    def of(self, plan: Plan) -> dict[str, str]:
        """In a thread. Where a server minted them that has died, they were in its memory only:
        there are new ones.
        """
        key = f"{plan.uuid}-{plan.attempt}"
        if key not in self._tokens:
            tokens, hashes = self.mint(plan)
            self._store.write(
                partial(transactions.insert_tokens, plan, hashes, self._clock_ns())
            ).result()
            self.keep(key, tokens)
        return self._tokens[key]

    def forget(self, key: str) -> None:
        self._tokens.pop(key, None)
