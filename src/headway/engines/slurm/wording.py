"""A refusal of Slurm's in words: what was asked for, what there is, what to type. Called by `trial`
and the engine.

Each sentence asks Slurm for the names that would do; where that is not told, it stands without
them.
"""

from collections.abc import Sequence
from typing import Any, Final

from headway.engines.protocol import Plan
from headway.engines.slurm import answer, limit, refusal, script
from headway.engines.slurm.answer import JobLine, NodeLine
from headway.engines.slurm.limit import Ask
from headway.model.errors import RefusedError
from headway.settings.nearest import did_you_mean

NAMED_MAX: Final = 12
_ADMIN: Final = "ask the cluster's administrators"


class Wording:
    def __init__(self, ask: Ask, uid: int) -> None:
        self._ask, self._uid = ask, uid
        self._user = ask(["id", "-un"]).strip()  # there, which may be another machine

    def of(self, plan: Plan, error: RefusedError, nodes: Sequence[NodeLine] = ()) -> RefusedError:
        if word := refusal.word_in(error.message):
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
        return RefusedError(
            f"{told[0]} (Slurm: {error.message.removeprefix(refusal.REFUSES)})", told[1]
        )

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
            answer.read_fields(self._ask(["scontrol", "show", "partition", "-o", str(place)]))
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

    def _of_names(self, what: str, name: Any, field: str) -> tuple[str, str] | None:
        if not name:
            return None
        said = self._ask(["scontrol", "show", what, "-o"])
        there = [
            told[field] for line in said.splitlines() if field in (told := answer.read_fields(line))
        ]
        hint = f"there: {_names(there)}" if there else f"there is no {what} now"
        return f"{what} {name!r} is not there, or not for you{did_you_mean(str(name), there)}", hint

    def _of_licences(self) -> tuple[str, str]:
        said = [
            answer.read_fields(line)
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
