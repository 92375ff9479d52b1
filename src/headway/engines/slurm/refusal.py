"""What Slurm says when it does not take a job: for now, or never. Pure. Called by `command` and
`trial`.

Slurm's word for a limit stands on a line of its own before the reason: `sbatch: error:
AssocMaxSubmitJobLimit`. A limit on how many jobs may be queued is over when some have ended; every
other limit is on the job itself.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from headway.engines.protocol import Plan
from headway.engines.slurm import parse, script
from headway.engines.slurm.parse import JobLine, NodeLine
from headway.engines.slurm.why import limit, reason
from headway.engines.slurm.why.limit import Ask
from headway.model.errors import LaterError, RefusedError
from headway.settings.nearest import did_you_mean

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


NAMED_MAX: Final = 12
_ADMIN: Final = "ask the cluster's administrators"


class Wording:
    def __init__(self, ask: Ask, uid: int) -> None:
        self._ask, self._uid = ask, uid
        self._user = ask(["id", "-un"]).strip()  # there, which may be another machine

    def of(self, plan: Plan, error: RefusedError, nodes: Sequence[NodeLine] = ()) -> RefusedError:
        if word := word_in(error.message):
            return self._of_limit(plan, error, word)
        text, told = error.message.lower(), None
        if "invalid account" in text:
            told = self._of_account(plan.options)
        elif "invalid qos" in text:
            told = self._of_qos(plan.options)
        elif "invalid feature" in text:
            told = _of_feature(plan.options, nodes)
        elif "reservation" in text:
            told = self._of_names("reservation", plan.options.get("reservation"), "ReservationName")
        elif "license" in text:
            told = self._of_licences()
        elif "node configuration" in text:
            told = (
                _shape_words(plan),
                "ask for less, or for another kind of node; hw clusters -v shows what there is",
            )
        if told is None:
            return error
        return RefusedError(f"{told[0]} (Slurm: {error.message.removeprefix(REFUSES)})", told[1])

    def _of_limit(self, plan: Plan, error: RefusedError, word: str) -> RefusedError:
        """What is in use changes from moment to moment, and is left out."""
        limits = limit.explain(word, self._as_job(plan), self._ask, with_use=False)
        return type(error)(f"{error.message}: {'; '.join(limits)}", error.hint) if limits else error

    def _as_job(self, plan: Plan) -> JobLine:
        """As Slurm would tell it, as far as limits go."""
        asked = {
            name: value
            for name, _, value in (line.partition("=") for line in script.shape(plan)[1:])
        }
        fields = {
            "NumNodes": asked.get("--nodes", "1"), "TresPerNode": asked.get("--gres", ""),
            "NumCPUs": str(len(plan.tasks) * int(asked.get("--cpus-per-task", "1"))),
            "MinMemoryNode": asked.get("--mem", ""), "TimeLimit": asked.get("--time", ""),
            "UserId": f"{self._user}({self._uid})", "Account": asked.get("--account", ""),
            "QOS": asked.get("--qos", ""), "Partition": asked.get("--partition", ""),
        }  # fmt: skip
        return JobLine("", "PENDING", fields=fields)

    def _own(self, field: str) -> list[str]:
        said = self._ask(
            ["sacctmgr", "-nP", "show", "assoc", f"user={self._user}", f"format={field}"]
        )
        return list(
            dict.fromkeys(
                part for line in said.splitlines() for part in line.strip().split(",") if part
            )
        )

    def _of_account(self, options: Any) -> tuple[str, str]:
        own, name, place = self._own("Account"), options.get("account"), options.get("partition")
        if name and own and name not in own:
            return (
                f"account {name!r} is not one of yours{did_you_mean(name, own)}",
                f"yours: {_names(own)}",
            )
        told = (
            parse.read_fields(self._ask(["scontrol", "show", "partition", "-o", str(place)]))
            if place
            else {}
        )
        lists = [
            f"{word} {told[word]}"
            for word in ("AllowAccounts", "DenyAccounts")
            if told.get(word, "ALL") != "ALL"
        ]
        who, where = (
            f"account {name!r}" if name else "your account",
            f" in partition {place}" if place else "",
        )
        hint = f"yours: {_names(own)}" if own else _ADMIN
        return f"{who} may not be used{where}{f' ({chr(44).join(lists)})' if lists else ''}", hint

    def _of_qos(self, options: Any) -> tuple[str, str]:
        own, name = self._own("QOS"), str(options.get("qos") or "")
        who = (
            f"QoS {name!r} is not one that you may use here"
            if name
            else "your QoS may not be used here"
        )
        return f"{who}{did_you_mean(name, own)}", f"yours: {_names(own)}" if own else _ADMIN

    def _of_names(self, what: str, name: object, field: str) -> tuple[str, str] | None:
        if not name:
            return None
        said = self._ask(["scontrol", "show", what, "-o"])
        there = [
            told[field] for line in said.splitlines() if field in (told := parse.read_fields(line))
        ]
        hint = f"there: {_names(there)}" if there else f"there is no {what} now"
        return f"{what} {name!r} is not there, or not for you{did_you_mean(str(name), there)}", hint

    def _of_licences(self) -> tuple[str, str]:
        said = [
            parse.read_fields(line)
            for line in self._ask(["scontrol", "show", "licenses", "-o"]).splitlines()
        ]
        there = [
            f"{told['LicenseName']} ({told.get('Total', '?')})"
            for told in said
            if "LicenseName" in told
        ]
        return "it asks for a licence that is not there, or for more than there are", (
            f"there: {_names(there)}" if there else "there are none"
        )


def _of_feature(options: Any, nodes: Sequence[NodeLine]) -> tuple[str, str]:
    there = sorted({feature for node in nodes for feature in node.features})
    name = str(options.get("constraint") or "")
    hint = f"features: {_names(there)}" if there else "the nodes have no features"
    return f"no node has what the constraint {name!r} asks for{did_you_mean(name, there)}", hint


def _shape_words(plan: Plan) -> str:
    always = ("--no-requeue", "--export", "--open-mode", "--ntasks=", "--ntasks-per-node")
    asked = [line for line in script.shape(plan)[1:] if not line.startswith(always)]
    return f"no nodes could ever give this together: {' '.join(asked)}"


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED_MAX]) + (
        f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    )
