"""What Slurm says when it does not take a job: for now, or never. Pure. Called by `command` and
`trial`.

Slurm's word for a limit stands on a line of its own before the reason: `sbatch: error:
AssocMaxSubmitJobLimit`. A limit on how many jobs may be queued is over when some have ended; every
other limit is on the job itself.
"""

import re
from typing import Final

from headway.engines.slurm import reason
from headway.model.errors import LaterError, RefusedError

_LEAD: Final = re.compile(
    r"^(?:\w+: )?(?:error: )?(?:allocation failure: |Batch job submission failed: )?"
)
# sbatch itself tries these again for two minutes, and says so first; the others are over when an
# administrator says so.
_FULL: Final = (
    "temporarily unable to accept job", "job queue full", "job creation temporarily disabled",
    "unable to create job record, try again",
)  # fmt: skip
_CLOSED: Final = (
    "required partition not available (inactive or drain)",
    "system submissions disabled",
)
_POLICY: Final = "job violates accounting/qos policy"
_USAGE: Final = re.compile(r"\nTry .* for more information\s*\Z")
FULL: Final = "Slurm takes no new jobs now: it has as many as it may (MaxJobCount), or is very busy"
_ERROR: Final = re.compile(r"sbatch: error: (?!Batch job)")
REFUSES: Final = "Slurm refuses it: "


def read(code: int, said: str) -> RefusedError:
    """The last line is the reason; the ones before are about environment and plugins."""
    lines = lines_of(_USAGE.sub("", said))
    last = lines[-1] if lines else f"exit code {code}"
    low = said.lower()
    if is_full(said):
        return LaterError(FULL)
    if any(words in low for words in _CLOSED):
        return LaterError(f"Slurm takes no new jobs there now: {last}")
    if _POLICY in low:
        return _of_policy(lines)
    # by Slurm, or by a plugin of the site
    told = [line for line in said.splitlines()[:-1] if _ERROR.match(line)]
    return RefusedError(f"{REFUSES}{'; '.join([*lines_of(told[-1] if told else ''), last])}")


def is_full(said: str) -> bool:
    low = said.lower()
    return any(words in low for words in _FULL)


def lines_of(said: str) -> list[str]:
    """Without what stands before every one of them."""
    return [_LEAD.sub("", line.strip(), count=1) for line in said.splitlines() if line.strip()]


def word_in(text: str) -> str:
    """The limit that is meant; empty: not told."""
    return next(
        (word for word in re.findall(r"\b[A-Z]\w+\b", text) if reason.LIMIT.match(word)), ""
    )


def _of_policy(lines: list[str]) -> RefusedError:
    word = word_in("\n".join(lines[:-1]))
    if word and "Submit" not in word:
        told = reason.explain(word)
        return RefusedError(f"{REFUSES}{told.text} ({word})", told.hint)
    told_word = f" ({word})" if word else ""
    return LaterError(
        f"Slurm takes no more jobs of yours now: as many are queued as may be{told_word}"
    )
