"""Whether Slurm would take a request at all, asked before a job is stored. Called by the engine's
`plan`.

`sbatch --test-only` starts nothing. It is asked once for each request that is different, and not
while the controller is away. Only what time cannot mend is refused: while nodes are down it answers
as if they were not there.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from headway.engines.protocol import Plan
from headway.engines.slurm import script
from headway.engines.slurm.commands import Commands
from headway.engines.slurm.parse import NodeLine
from headway.model.errors import LaterError, RefusedError, UnreachableError

TIMEOUT_S: Final = 5.0  # a person waits for it
YES_KEPT_S: Final = 600.0
NO_KEPT_S: Final = 10.0  # somebody may have just been let in
AWAY_S: Final = 30.0
KNOWN_MAX: Final = 1000

_FINAL: Final = (
    "invalid account", "invalid qos", "invalid partition", "invalid feature", "invalid preferred feature",
    "invalid license", "requested reservation is invalid", "access denied to requested reservation",
    "invalid node name", "requested nodes not in this partition", "group not permitted", "access/permission denied",
    "invalid generic resource", "invalid gres", "invalid wckey", "node count specification invalid",
    "requested time limit is invalid", "time limit specification required", "memory required by task",
    "more processors requested", "cpu count specification invalid", "invalid trackable", "invalid --nice",
    "unspecified error", "unrecognized option", "asks for more than", "asks for less than",
)  # fmt: skip
# or only not now, while nodes are away
_NEVER: Final = "requested node configuration is not available"

Words = Callable[[Plan, RefusedError, Sequence[NodeLine]], RefusedError]


class Trial:
    def __init__(
        self, commands: Commands, words: Words, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._commands, self._words, self._clock_s = commands, words, clock_s
        # until when, and why not
        self._known: dict[tuple[str, ...], tuple[float, RefusedError | None]] = {}
        self._away_until_s = 0.0

    def check(self, plan: Plan, text: str, nodes: Callable[[], Sequence[NodeLine]]) -> None:
        """RefusedError, in words, for what Slurm would never take. `nodes`: asks for those that it
        could have, as they are after a refusal: one that was drained a moment ago would make it
        seem final.
        """
        shape, now_s = script.shape(plan), self._clock_s()
        until_s, refused = self._known.get(shape, (0.0, None))
        if now_s >= until_s:
            if now_s < self._away_until_s:
                return
            try:
                refused = self._ask(plan, text, nodes)
            except UnreachableError:
                self.away()
                return
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[shape] = (now_s + (YES_KEPT_S if refused is None else NO_KEPT_S), refused)
        if refused is not None:
            raise refused

    def away(self) -> None:
        """The controller did not answer: for a while nobody shall wait for it."""
        self._away_until_s = self._clock_s() + AWAY_S

    def _ask(
        self, plan: Plan, text: str, nodes: Callable[[], Sequence[NodeLine]]
    ) -> RefusedError | None:
        try:
            self._commands.run(["sbatch", "--test-only"], text, timeout_s=TIMEOUT_S)
        except LaterError:
            return None  # a full queue is waited for
        except RefusedError as error:
            known = nodes()
            return self._words(plan, error, known) if is_final(error, known) else None
        return None


def is_final(error: RefusedError, nodes: Sequence[NodeLine]) -> bool:
    text = error.message.lower()
    if _NEVER in text:
        return bool(nodes) and all(node.is_usable for node in nodes)
    return any(words in text for words in _FINAL)
