"""The limit that holds a job back, with the value that is allowed and the one that is asked for. Called by `waiting`.

Slurm's word says which limit it is (`QOSMaxGRESPerUser`); its value and what is used of it come from
`scontrol show assoc_mgr`, or, where that does not answer, from `sacctmgr`; those of a partition or a reservation from
`scontrol show partition` and `show reservation`. Where nobody tells, nothing is said.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headway.engines.slurm import answer
from headway.engines.slurm.answer import JobLine
from headway.engines.slurm.fit import MIB, Need, duration_text, plural
from headway.engines.slurm.reason import LIMIT
from headway.engines.slurm.script import MARGIN_S
from headway.settings.quantity import size_text

Ask = Callable[[Sequence[str]], str]  # runs one of Slurm's commands; empty: it does not answer

_TRES: Final = {
    "cpu": "cpu", "gres": "gres/", "mem": "mem", "memory": "mem", "node": "node", "billing": "billing", "bb": "bb/",
    "energy": "energy", "license": "license/", "unknown": "",
}  # fmt: skip
_SACCTMGR: Final = {  # the field of assoc_mgr -> the same in sacctmgr
    "GrpSubmitJobs": "GrpSubmit", "MaxWallPJ": "MaxWall", "MaxTRESPJ": "MaxTRES", "MaxTRESPN": "MaxTRESPerNode",
    "MaxTRESMinsPJ": "MaxTRESMins", "MaxSubmitJobs": "MaxSubmit", "MaxSubmitJobsPU": "MaxSubmitPU",
    "MaxSubmitJobsPA": "MaxSubmitPA", "MinTRESPJ": "MinTRES",
}  # fmt: skip
_FOR: Final = {"PJ": "for one job", "PN": "for each node", "PU": "for each user", "PA": "for each account"}
_VALUE: Final = re.compile(r"(?P<most>[\d.]+)(?P<unit>[KMGT]?)(?:\((?P<used>[\d.]+)\))?\Z")


@dataclass(frozen=True, slots=True)
class Record:
    """One QoS or association: its limits by the name that Slurm gives them, as `4`, `4(3)` or `cpu=4(3),mem=N(5)`."""

    name: str  # for a person: "QoS normal", "account ml"
    limits: Mapping[str, str]
    source: str


def explain(word: str, job: JobLine, ask: Ask, now: datetime | None = None) -> tuple[str, ...]:
    """One sentence for each limit that is meant. `now`: by the cluster's clock."""
    found = LIMIT.match(word)
    if found is not None:
        return tuple(_of_policy(found, job, ask))
    if word.startswith("Partition") or word in ("AccountNotAllowed", "QOSNotAllowed"):
        return tuple(_of_partition(word, job, ask))
    if word in ("Reservation", "ReqNodeNotAvail", "Resources", "Priority", "NodeDown", "BeginTime"):
        return tuple(_of_reservations(word, job, ask, now))
    return ()


# -- QoS and associations ---------------------------------------------------------------------------------------------


def _of_policy(found: re.Match[str], job: JobLine, ask: Ask) -> Iterator[str]:
    field = field_of(found)
    for record in _records(found["whose"], job, ask):
        text = _sentence(record, field, found["what"].lower(), job)
        if text is not None:
            yield text


def field_of(found: re.Match[str]) -> str:
    """The name of the limit that a word means: `QOSMaxGRESPerUser` is MaxTRESPU."""
    kind, what, rest = found["kind"], found["what"].lower(), found["rest"]
    each = next((short for long, short in (("PerUser", "PU"), ("PerAccount", "PA")) if long in rest), "")
    if what.startswith("submit"):
        return f"{kind}SubmitJobs{each}"
    if what.startswith("job"):
        return f"{kind}Jobs{each}"
    if what.startswith("wall"):
        return "GrpWall" if kind == "Grp" else "MaxWallPJ"
    minutes = "RunMins" if "Run" in rest else "Mins" if "Minutes" in rest or "Mins" in rest else ""
    where = "" if kind == "Grp" else "PN" if "PerNode" in rest else each or "PJ"
    return f"{kind}TRES{minutes}{where}"


def _records(whose: str, job: JobLine, ask: Ask) -> list[Record]:
    if whose == "Assoc":
        account = job.fields.get("Account", "")
        return _associations(account, ask) if answer.is_word(account) else []
    found = []
    names = [job.fields.get("QOS", ""), partition(job, ask).get("QoS", "")]
    for name in dict.fromkeys(filter(answer.is_word, names)):
        found += _qos(name, job, ask)
    return found


def _qos(name: str, job: JobLine, ask: Ask) -> list[Record]:
    said = ask(["scontrol", "-o", "show", "assoc_mgr", f"qos={name}", "flags=qos"])
    for line in said.splitlines():
        if line.startswith("QOS="):
            uid = re.search(r"\((\d+)\)", job.fields.get("UserId", ""))
            parts = [line.partition(" Account Limits=")[0]]
            parts += re.findall(rf" {re.escape(job.fields.get('Account', ''))}={{([^}}]*)}}", line)
            parts += re.findall(rf" {uid[1]}={{([^}}]*)}}", line) if uid else []
            return [Record(f"QoS {name}", _pairs(" ".join(parts)), "scontrol show assoc_mgr")]
    return [
        Record(f"QoS {name}", row, "sacctmgr show qos") for row in _table(ask(["sacctmgr", "-P", "show", "qos", name]))
    ]


def _associations(account: str, ask: Ask) -> list[Record]:
    said = ask(["scontrol", "-o", "show", "assoc_mgr", f"accounts={account}", "flags=assoc"])
    rows = [_pairs(line) for line in said.splitlines() if line.startswith("ClusterName=")]
    source = "scontrol show assoc_mgr"
    if not rows:
        rows = _table(ask(["sacctmgr", "-P", "show", "assoc", f"account={account}"]))
        source = "sacctmgr show assoc"
    found = []
    for row in rows:
        user = (row.get("UserName") or row.get("User") or "").partition("(")[0]
        found.append(Record(f"account {account}" + (f" of {user}" if user else ""), row, source))
    return found


def _pairs(line: str) -> dict[str, str]:
    return {name: value for name, _, value in (part.partition("=") for part in line.split())}


def _table(text: str) -> list[dict[str, str]]:
    """`sacctmgr -P`: a line of names, then one for each row."""
    lines = [line.split("|") for line in text.splitlines() if "|" in line]
    return [dict(zip(lines[0], row, strict=False)) for row in lines[1:]]


def _sentence(record: Record, field: str, what: str, job: JobLine) -> str | None:
    """None: this record has no such limit."""
    value = record.limits.get(field) or record.limits.get(_SACCTMGR.get(field, field)) or ""
    name, told = field, value
    if "TRES" in field:
        name, told = _one_of(value, _TRES.get(what, what), job)
    if field.endswith("WallPJ") and (limit_s := answer.seconds(told)) is not None:
        asked_s = Need.of(job).time_s
        asked = duration_text(asked_s) if asked_s is not None else "no limit"
        most_words = f"{duration_text(limit_s)} for one job ({field})"
        return f"{record.name} allows {most_words}, and it asks for {asked} ({record.source})"
    read = _VALUE.match(told)
    if read is None:
        return None
    scale = 1024 if read["unit"] == "G" else 1024 * 1024 if read["unit"] == "T" else 1
    most = float(read["most"]) * scale
    scope = _FOR.get(field[-2:], "together" if field.startswith("Grp") else "")
    asked_count = _asked(field, name, job)
    verb = "wants at least" if field.startswith("Min") else "allows"
    used = f"; {_amount(float(read['used']), name, field)} in use" if read["used"] is not None else ""
    ask_words = f", and it asks for {_amount(asked_count, name, field)}" if asked_count is not None else ""
    label = field if name == field else f"{field} {name}"
    words = [record.name, verb, _amount(most, name, field), scope, f"({label}){used}{ask_words}", f"({record.source})"]
    return " ".join(filter(None, words))


def _one_of(value: str, prefix: str, job: JobLine) -> tuple[str, str]:
    """The resource of the list that the word means: its name and its limit."""
    asked = answer.read_tres(job.fields.get("ReqTRES") or job.fields.get("TRES", ""))
    limited = [
        (name, told) for name, _, told in (part.partition("=") for part in value.split(","))
        if name.startswith(prefix) and told and not told.startswith("N")
    ]  # fmt: skip
    wanted = [pair for pair in limited if pair[0] in asked]
    return (wanted or limited or [("", "")])[0]


def _asked(field: str, name: str, job: JobLine) -> float | None:
    """What this job adds; None where that cannot be told."""
    need = Need.of(job)
    if name == field:
        return 1 if "Jobs" in field else None
    each = 1 if field.endswith("PN") else need.nodes
    minutes = (need.time_s or 0) / 60 if "Mins" in field else 1
    plain = {"cpu": need.cpus * each, "mem": need.memory_bytes // MIB * each, "node": need.nodes}
    if name in plain:
        return plain[name] * minutes
    if name.startswith("gres/gpu"):
        return need.gpus * each * minutes
    told = answer.read_tres(job.fields.get("ReqTRES") or job.fields.get("TRES", "")).get(name)
    return None if told is None else told * minutes


def _amount(count: float, name: str, field: str) -> str:
    minutes = " minutes" if "Mins" in field else ""
    number = int(count) if count == int(count) else count
    if "Jobs" in field:
        return plural(int(count), "job")
    if field == "GrpWall":
        return duration_text(count * 60)
    if name == "mem" and not minutes:
        return size_text(int(count) * MIB)
    if name == "cpu" or name == "node" or name.startswith("gres/gpu"):
        noun = {"cpu": "CPU", "node": "node"}.get(name, "GPU")
        return f"{plural(int(count), noun)}" if not minutes else f"{number} {noun}{minutes}"
    return f"{number} of {name}{minutes}"


# -- partitions -------------------------------------------------------------------------------------------------------


def partition(job: JobLine, ask: Ask) -> dict[str, str]:
    name = job.fields.get("Partition", "").partition(",")[0]
    return answer.read_fields(ask(["scontrol", "show", "partition", "-o", name])) if answer.is_word(name) else {}


def _of_partition(word: str, job: JobLine, ask: Ask) -> Iterator[str]:
    told, need = partition(job, ask), Need.of(job)
    who = f"partition {told.get('PartitionName', '')}"
    source = "(scontrol show partition)"
    if not told:
        return
    if word in ("PartitionTimeLimit", "PartitionConfig"):
        most_s = answer.seconds(told.get("MaxTime", ""))
        if most_s is not None and need.time_s is not None and need.time_s > most_s:
            asked = duration_text(need.time_s)
            yield f"{who} allows {duration_text(most_s)} (MaxTime), and it asks for {asked} {source}"
    if word in ("PartitionNodeLimit", "PartitionConfig"):
        for field, sign in (("MaxNodes", 1), ("TotalNodes", 1), ("MinNodes", -1)):
            limit = told.get(field, "")
            if limit.isdigit() and (need.nodes - int(limit)) * sign > 0:
                verb = "wants at least" if sign < 0 else "has" if field == "TotalNodes" else "allows"
                yield f"{who} {verb} {plural(int(limit), 'node')} ({field}), and it asks for {need.nodes} {source}"
    if word in ("PartitionDown", "PartitionInactive", "PartitionConfig") and told.get("State", "UP") != "UP":
        yield f"{who} is {told['State']} {source}"
    if word in ("AccountNotAllowed", "QOSNotAllowed", "PartitionConfig"):
        yield from _of_lists(who, told, job, source)


def _of_lists(who: str, told: Mapping[str, str], job: JobLine, source: str) -> Iterator[str]:
    """Who may use a partition, where not everybody may."""
    for what, own in (("Accounts", "Account"), ("Qos", "QOS")):
        for verb in ("Allow", "Deny"):
            names = told.get(f"{verb}{what}", "ALL")
            if names != "ALL":
                has = job.fields.get(own) or "none"
                yield f"{who}: {verb}{what} {names}, and its {own.lower()} is {has} {source}"


# -- reservations and maintenance -------------------------------------------------------------------------------------


def _of_reservations(word: str, job: JobLine, ask: Ask, now: datetime | None) -> Iterator[str]:
    """Its own one; and those that begin before it would have ended: it cannot start in front of them."""
    own, need = job.fields.get("Reservation", ""), Need.of(job)
    for line in ask(["scontrol", "show", "reservation", "-o"]).splitlines():
        told = answer.read_fields(line)
        name, nodes = told.get("ReservationName", ""), told.get("Nodes", "")
        begin, end = told.get("StartTime", ""), told.get("EndTime", "")
        source = "(scontrol show reservation)"
        if not name:
            continue
        if name == own:
            users = told.get("Users") or "some"
            yield f"its reservation {name} has {nodes or 'no nodes'} from {begin} to {end}, for {users} {source}"
        elif now is not None and need.time_s is not None and _is_ahead(begin, end, need.time_s, now):
            kind = "maintenance" if "MAINT" in told.get("Flags", "") else "reservation"
            left = max(0.0, (datetime.fromisoformat(begin) - now).total_seconds())
            yield (
                f"the {kind} {name} takes {nodes} from {begin} to {end}: in {duration_text(left)}, and it asks for "
                f"{duration_text(need.time_s)}{_in_time(left)} {source}"
            )


def _in_time(left_s: float) -> str:
    """What would end before that, with the margin that Slurm gets beyond the job's own end."""
    minutes = int(left_s - MARGIN_S - 60) // 60
    return f"; with --max-duration {minutes}m it would end before" if minutes > 0 else ""


def _is_ahead(begin: str, end: str, time_s: float, now: datetime) -> bool:
    try:
        start, over = datetime.fromisoformat(begin), datetime.fromisoformat(end)
    except ValueError:
        return False
    return over > now and (start - now).total_seconds() < time_s
