"""The limit that holds a job back, with the value that is allowed and the one that is asked for.
Called by `waiting`.

Slurm's word says which limit it is (`QOSMaxGRESPerUser`); its value and what is used of it come
from `scontrol show assoc_mgr`, or, where that does not answer, from `sacctmgr`; those of a
partition or a reservation from `scontrol show partition` and `show reservation`. Where nobody
tells, nothing is said.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headway.engines.slurm import parse
from headway.engines.slurm.parse import JobLine
from headway.engines.slurm.why import reservation
from headway.engines.slurm.why.fit import MIB, Need, duration_text, plural
from headway.engines.slurm.why.reason import LIMIT
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
_FOR: Final = {
    "PJ": "for one job",
    "PN": "for each node",
    "PU": "for each user",
    "PA": "for each account",
}
_NUMBER: Final = r"[0-9]{1,18}(?:\.[0-9]{1,9})?"
_VALUE: Final = re.compile(rf"(?P<most>{_NUMBER})(?P<unit>[KMGT]?)(?:\((?P<used>{_NUMBER})\))?\Z")


@dataclass(frozen=True, slots=True)
class Record:
    """One QoS or association: its limits by the name that Slurm gives them, as `4`, `4(3)` or
    `cpu=4(3),mem=N(5)`.
    """

    name: str  # for a person: "QoS normal", "account ml"
    limits: Mapping[str, str]
    source: str


def explain(
    word: str, job: JobLine, ask: Ask, now: datetime | None = None, *, with_use: bool = True
) -> tuple[str, ...]:
    """One sentence for each limit that is meant. `now`: by the cluster's clock. `with_use`: and
    what is used of it.
    """
    found = LIMIT.match(word)
    if found is not None:
        return tuple(_of_policy(found, job, ask, with_use))
    if word == "Licenses":
        return tuple(_of_licences(job, ask))
    if word.startswith("Partition") or word in ("AccountNotAllowed", "QOSNotAllowed"):
        return tuple(_of_partition(word, job, ask))
    if word in ("Reservation", "ReqNodeNotAvail", "Resources", "Priority", "NodeDown", "BeginTime"):
        return tuple(_of_reservations(job, ask, now))
    return ()


# -- QoS and associations


def _of_policy(found: re.Match[str], job: JobLine, ask: Ask, with_use: bool) -> list[str]:
    """Where several have such a limit, those that are reached. Of two QoS the first that has it
    counts, as in Slurm.
    """
    field, what = field_of(found), found["what"].lower()
    is_assoc = found["whose"] == "Assoc"
    records = _associations(field, job, ask) if is_assoc else _qos_of(field, what, job, ask)
    told = [one for record in records if (one := _told(record, field, what, job)) is not None]
    reached = [one for one in told if one.is_reached] or told
    return [one.sentence(with_use) for one in (reached if is_assoc else told[:1])]


def field_of(found: re.Match[str]) -> str:
    """The name of the limit that a word means: `QOSMaxGRESPerUser` is MaxTRESPU."""
    kind, what, rest = found["kind"], found["what"].lower(), found["rest"]
    each = next(
        (short for long, short in (("PerUser", "PU"), ("PerAccount", "PA")) if long in rest), ""
    )
    if what.startswith("submit"):
        return f"{kind}SubmitJobs{each}"
    if what.startswith("job"):
        return f"{kind}Jobs{each}"
    if what.startswith("wall"):
        return "GrpWall" if kind == "Grp" else "MaxWallPJ"
    minutes = ""
    if "Run" in rest:
        minutes = "RunMins"
    elif "Minutes" in rest or "Mins" in rest:
        minutes = "Mins"
    where = each or "PJ"
    if kind == "Grp":
        where = ""
    elif "PerNode" in rest:
        where = "PN"
    return f"{kind}TRES{minutes}{where}"


def _qos_of(field: str, what: str, job: JobLine, ask: Ask) -> list[Record]:
    """The partition's own goes before the job's, unless that one says OverPartQOS."""
    names = [partition(job, ask).get("QoS", ""), job.fields.get("QOS", "")]
    found = [
        record
        for name in dict.fromkeys(filter(parse.is_word, names))
        for record in _qos(name, job, ask)
    ]
    if sum(_told(record, field, what, job) is not None for record in found) > 1:
        flags = ask(["sacctmgr", "-nP", "show", "qos", names[1], "format=Flags"])
        found = found[::-1] if "OverPartQOS" in flags else found
    return found


def _qos(name: str, job: JobLine, ask: Ask) -> list[Record]:
    said = ask(["scontrol", "-o", "show", "assoc_mgr", f"qos={name}", "flags=qos"])
    for line in parse.lines_of(said):
        if line.startswith("QOS="):
            uid = re.search(r"\((\d+)\)", job.fields.get("UserId", ""))
            parts = [line.partition(" Account Limits=")[0]]
            parts += re.findall(rf" {re.escape(job.fields.get('Account', ''))}={{([^}}]*)}}", line)
            parts += re.findall(rf" {uid[1]}={{([^}}]*)}}", line) if uid else []
            return [Record(f"QoS {name}", _pairs(" ".join(parts)), "scontrol show assoc_mgr")]
    return [
        Record(f"QoS {name}", row, "sacctmgr show qos")
        for row in _table(ask(["sacctmgr", "-P", "show", "qos", name]))
    ]


def _associations(field: str, job: JobLine, ask: Ask) -> list[Record]:
    """The user's own in the account, the account, and those above it. What one hands down (Max…)
    stands in the user's own already.
    """
    user, account = job.fields.get("UserId", "").partition("(")[0], job.fields.get("Account", "")
    said = ask(
        ["scontrol", "-o", "show", "assoc_mgr", *([f"users={user}"] if user else []), "flags=assoc"]
    )
    rows = [_pairs(line) for line in parse.lines_of(said) if line.startswith("ClusterName=")]
    source = "scontrol show assoc_mgr"
    if not rows and parse.is_word(account):
        rows = _table(ask(["sacctmgr", "-P", "show", "assoc", f"account={account}"]))
        source = "sacctmgr show assoc"
    if not parse.is_word(account):
        account = next(
            (
                row["Account"]
                for row in rows
                if row.get("DefAssoc") == "Yes" and _user_of(row) == user
            ),
            "",
        )
    chain = _chain(rows, account, user)
    own = [row for row in chain if _user_of(row)]
    found = own or chain if not field.startswith("Grp") else chain
    return [Record(f"account {row['Account']}" + (f" of {name}" if (name := _user_of(row)) else ""), row, source)
            for row in found]  # fmt: skip


def _chain(rows: Sequence[Mapping[str, str]], account: str, user: str) -> list[Mapping[str, str]]:
    """From the user's own row up to the root of all accounts."""
    found: list[Mapping[str, str]] = [
        r for r in rows if r.get("Account") == account and user and _user_of(r) == user
    ]
    above = {row.get("Account", ""): row for row in rows if not _user_of(row)}
    while account in above and above[account] not in found:
        found.append(above[account])
        account = (
            above[account]
            .get("ParentAccount", above[account].get("ParentName", ""))
            .partition("(")[0]
        )
    return found


def _user_of(row: Mapping[str, str]) -> str:
    return (row.get("UserName") or row.get("User") or "").partition("(")[0]


def _pairs(line: str) -> dict[str, str]:
    return {name: value for name, _, value in (part.partition("=") for part in line.split())}


def _table(text: str) -> list[dict[str, str]]:
    """`sacctmgr -P`: a line of names, then one for each row."""
    lines = [line.split("|") for line in parse.lines_of(text) if "|" in line]
    return [dict(zip(lines[0], row, strict=False)) for row in lines[1:]]


@dataclass(frozen=True, slots=True)
class Told:
    """One limit: what is allowed, what is used of it and what the job asks for, each as a number
    and in words.
    """

    start: str  # QoS normal allows 4 GPUs for each user (MaxTRESPU gres/gpu)
    used: str
    asked: str
    source: str
    is_reached: bool
    alone: bool = False  # this job by itself is over it

    def sentence(self, with_use: bool) -> str:
        use = f"; {self.used} in use" if self.used and with_use else ""
        # one more job says nothing alone
        counted = self.asked and (with_use or "job" not in self.asked)
        asked = f", and it asks for {self.asked}" if counted else ""
        never = (
            ": alone it is over that, so it never starts as it is"
            if self.alone and self.used
            else ""
        )
        return f"{self.start}{use}{asked}{never} ({self.source})"


def _told(record: Record, field: str, what: str, job: JobLine) -> Told | None:
    """None: this record has no such limit."""
    value = record.limits.get(field) or record.limits.get(_SACCTMGR.get(field, field)) or ""
    name, told = field, value
    if "TRES" in field:
        name, told = _one_of(value, _TRES.get(what, what), job)
    if field.endswith("WallPJ") and (limit_s := parse.seconds(told)) is not None:
        asked_s = Need.of(job).time_s
        asked = duration_text(asked_s) if asked_s is not None else "no limit"
        start = f"{record.name} allows {duration_text(limit_s)} for one job ({field})"
        return Told(start, "", asked, record.source, asked_s is None or asked_s > limit_s)
    read = _VALUE.match(told)
    if read is None:
        return None
    scale = {"G": 1024, "T": 1024 * 1024}.get(read["unit"], 1)
    most, used, count = (
        float(read["most"]) * scale,
        float(read["used"] or 0),
        _asked(field, name, job),
    )
    scope = _FOR.get(field[-2:], "together" if field.startswith("Grp") else "")
    verb = "wants at least" if field.startswith("Min") else "allows"
    label = field if name == field else f"{field} {name}"
    return Told(
        " ".join(
            filter(None, [record.name, verb, _amount(most, name, field), scope, f"({label})"])
        ),
        _amount(used, name, field) if read["used"] is not None else "",
        _amount(count, name, field) if count is not None else "",
        record.source,
        used + (count or 0) > most,
        not field.startswith("Min") and (count or 0) > most,
    )


def _one_of(value: str, prefix: str, job: JobLine) -> tuple[str, str]:
    """The resource of the list that the word means: its name and its limit."""
    asked = parse.read_tres(job.fields.get("ReqTRES") or job.fields.get("TRES", ""))
    limited = []
    for part in value.split(","):
        name, _, limit = part.partition("=")
        if name.startswith(prefix) and limit and not limit.startswith("N"):  # N: no limit
            limited.append((name, limit))
    for name, limit in limited:
        if name in asked:
            return name, limit
    return limited[0] if limited else ("", "")


def _asked(field: str, name: str, job: JobLine) -> float | None:
    """What this job adds; None where that cannot be told."""
    if name == field:
        return 1 if "Jobs" in field else None
    need = Need.of(job)
    nodes = 1 if field.endswith("PN") else need.nodes
    amount: float | None
    if name == "cpu":
        amount = need.cpus * nodes
    elif name == "mem":
        amount = need.memory_bytes // MIB * nodes
    elif name == "node":
        amount = need.nodes
    elif name.startswith("gres/gpu"):
        amount = need.gpus * nodes
    else:
        tres = job.fields.get("ReqTRES") or job.fields.get("TRES", "")
        amount = parse.read_tres(tres).get(name)
    if amount is not None and "Mins" in field:
        amount *= (need.time_s or 0) / 60
    return amount


_NOUNS = {"cpu": "CPU", "node": "node"}


def _amount(count: float, name: str, field: str) -> str:
    if "Jobs" in field:
        return plural(int(count), "queued job" if "Submit" in field else "job")
    if field == "GrpWall":
        return duration_text(count * 60)

    is_minutes = "Mins" in field
    if name == "mem" and not is_minutes:
        return size_text(int(count) * MIB)
    noun = None
    if name in _NOUNS:
        noun = _NOUNS[name]
    elif name.startswith("gres/gpu"):
        noun = "GPU"
    if noun is not None and not is_minutes:
        return plural(int(count), noun)

    number = int(count) if count == int(count) else count
    words = f"{number} of {name}" if noun is None else f"{number} {noun}"
    return f"{words} minutes" if is_minutes else words


# -- partitions


def partition(job: JobLine, ask: Ask) -> dict[str, str]:
    name = job.fields.get("Partition", "").partition(",")[0]
    return (
        parse.read_fields(ask(["scontrol", "show", "partition", "-o", name]))
        if parse.is_word(name)
        else {}
    )


def _of_partition(word: str, job: JobLine, ask: Ask) -> Iterator[str]:
    told, need = partition(job, ask), Need.of(job)
    who = f"partition {told.get('PartitionName', '')}"
    source = "(scontrol show partition)"
    if not told:
        return
    if word in ("PartitionTimeLimit", "PartitionConfig"):
        most_s = parse.seconds(told.get("MaxTime", ""))
        if most_s is not None and need.time_s is not None and need.time_s > most_s:
            asked = duration_text(need.time_s)
            yield f"{who} allows {duration_text(most_s)} (MaxTime), and it asks for {asked} {source}"
    if word in ("PartitionNodeLimit", "PartitionConfig"):
        for field, sign in (("MaxNodes", 1), ("TotalNodes", 1), ("MinNodes", -1)):
            limit = told.get(field, "")
            if parse.is_number(limit) and (need.nodes - int(limit)) * sign > 0:
                verb = "has" if field == "TotalNodes" else "allows"
                if sign < 0:
                    verb = "wants at least"
                yield f"{who} {verb} {plural(int(limit), 'node')} ({field}), and it asks for {need.nodes} {source}"
    if (
        word in ("PartitionDown", "PartitionInactive", "PartitionConfig")
        and told.get("State", "UP") != "UP"
    ):
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


# -- licences


def _of_licences(job: JobLine, ask: Ask) -> Iterator[str]:
    """`matlab:2,ansys@server`: what it asks for, of those that there are."""
    asked = [
        part.replace("=", ":").partition(":") for part in job.fields.get("Licenses", "").split(",")
    ]
    wanted = {name: parse.number_of(count) or 1 for name, _, count in asked}
    for line in parse.lines_of(ask(["scontrol", "show", "licenses", "-o"])):
        told = parse.read_fields(line)
        name = told.get("LicenseName", "")
        if name in wanted:
            yield (
                f"licence {name}: there are {told.get('Total', '?')}, {told.get('Used', '?')} in use, and it asks for "
                f"{wanted[name]} (scontrol show licenses)"
            )


# -- reservations and maintenance


def _of_reservations(job: JobLine, ask: Ask, now: datetime | None) -> Iterator[str]:
    for one in reservations(ask):
        told = reservation.sentence(
            one, job.fields.get("Reservation", ""), Need.of(job).time_s, now
        )
        if told is not None:
            yield f"{told} (scontrol show reservation)"


def reservations(ask: Ask) -> list[reservation.Reservation]:
    return reservation.read(ask(["scontrol", "show", "reservation", "-o"]))
