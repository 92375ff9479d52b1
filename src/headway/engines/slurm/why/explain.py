"""Why a job waits on Slurm: reason, position, what is free and does not fit, limits, forecast.
Called by the engine.

Each question may fail by itself (no accounting, no rights): then that part is not told, and the
rest is.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from headway.engines.protocol import Node, Waiting
from headway.engines.slurm import parse
from headway.engines.slurm.commands import Commands
from headway.engines.slurm.parse import JobLine, NodeLine
from headway.engines.slurm.why import fit, limit, reason, reservation, suggest
from headway.engines.slurm.why.fit import Need
from headway.engines.slurm.why.reservation import Reservation
from headway.model.errors import HeadwayError

ROOM: Final = ("Resources", "Priority", "None", "ReqNodeNotAvail", "Constraints", "NodeNotAvail")
# It is in nobody's way and nobody in its: who stands ahead, or what is free, does not matter.
_ASIDE: Final = (
    "JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "Dependency", "DependencyNeverSatisfied", "BeginTime",
)  # fmt: skip
# Less of it would do; what other limits allow `--test-only` does not regard.
_TOO_MUCH: Final = ("PartitionTimeLimit", "PartitionNodeLimit")
_AHEAD: Final = "%A|%Q|%D|%b|%C|%j"
_HOLDERS: Final = (
    "JobID:20,EndTime:24,NumNodes:8,tres-alloc:160,tres-per-node:80,Name:80,NodeList:400"
)


def explain(job: JobLine, nodes: Sequence[NodeLine], commands: Commands) -> Waiting:
    """`job`: as `scontrol show job` tells it; `nodes`: of its partition, as they are now."""
    if job.state == "running":
        return Waiting(
            f"{job.word}: Slurm has started it on {job.nodes}, and its agents have not spoken yet"
        )
    told, need = reason.explain(job.reason), Need.of(job)
    own = job.fields.get("Reservation", "")
    free = tuple(suggest.free_of(node, need.kind, whole=need.exclusive) for node in nodes)
    may = _may_have(job, need, free)
    now = _now(commands)
    said = partial(ask, commands)
    limits = limit.explain(told.word, job, said, now)
    own_s = suggest.own_delay_s(need, limit.partition(job, said))
    held = [one for one in limit.reservations(said) if one.name != own]
    is_room = told.word in ROOM
    room = None
    if is_room and now is not None:
        running = parse.read_holders(
            ask(commands, ["squeue", "-h", "-t", "R", "-O", _HOLDERS]), need.kind
        )
        # no end of a job brings one back
        away = {node.name for node in nodes if not node.is_usable}
        up = [one for one in may if one.name not in away]
        room = _room_at(need, up, running, held, now)
    is_aside = told.word in _ASIDE or told.never or reason.LIMIT.match(told.word) is not None
    ahead, words = ((), ()) if is_aside else _ahead(job, commands)
    waits_for = job.fields.get("Dependency", "") if told.word.startswith("Dependency") else ""
    text = told.text + (f" ({waits_for})" if parse.is_word(waits_for) else "")
    hint = (
        reason.AWAY_HINT
        if told.word == "ReqNodeNotAvail" and told.hint and not _names_nodes(job)
        else told.hint
    )
    text += f"; {hint.replace('ID', job.number or job.id)}" if hint else ""
    return Waiting(
        f"{told.word}: {text}",
        ahead,
        free,
        suggest.suggest(job, need, may, commands, now, own_s, held)
        if is_room or told.word in _TOO_MUCH
        else (),
        needs=need.words(),
        fit=_fit_words(job, need, may) if is_room else "",
        limits=limits,
        start=_forecast(job, need, room, held, now, is_room=is_room),
        start_ns=_start_ns(job, room if is_room else None, now),
        ahead_words=words,
        cause=_cause(told, is_room=is_room),
    )


def _cause(told: reason.Reason, *, is_room: bool) -> str:
    """Slurm's word as one of those that all engines use."""
    if told.never:
        return "held" if "Held" in told.word else "never"
    if told.word.startswith("Dependency"):
        return "dependency"
    if reason.LIMIT.match(told.word) is not None or told.word in _TOO_MUCH:
        return "limit"
    if told.word == "BeginTime":
        return "pause"
    if is_room and told.word != "Priority":
        return "resources"
    return "queue"


def _may_have(job: JobLine, need: Need, free: Sequence[Node]) -> Sequence[Node]:
    """Those of the nodes that it lets itself be given."""
    if len(_listed(job, "ReqNodeList")) >= need.nodes:
        return [one for one in free if one.name in _listed(job, "ReqNodeList")]
    return [one for one in free if one.name not in _listed(job, "ExcNodeList")]


def _listed(job: JobLine, field: str) -> list[str]:
    told = job.fields.get(field, "")
    return parse.expand_hosts(told) if parse.is_word(told) else []


def _fit_words(job: JobLine, need: Need, may: Sequence[Node]) -> str:
    words = fit.explain(need, may)
    return (
        f"{words}; it asks for {job.fields['ReqNodeList']}"
        if words and _names_nodes(job)
        else words
    )


def _names_nodes(job: JobLine) -> bool:
    return parse.is_word(job.fields.get("ReqNodeList", ""))


def ask(commands: Commands, argv: Sequence[str]) -> str:
    try:
        return commands.run(argv)
    except HeadwayError:
        return ""


def _now(commands: Commands) -> datetime | None:
    """By the clock of the machine that Slurm's commands run on: its times have no zone."""
    try:
        return datetime.fromisoformat(ask(commands, ["date", "+%Y-%m-%dT%H:%M:%S"]).strip())
    except ValueError:
        return None


def _ahead(job: JobLine, commands: Commands) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ids of waiting jobs of its partition with a higher place, and the same with what they ask
    for.
    """
    partition = job.fields.get("Partition", "").partition(",")[0]
    where = ["-p", partition] if parse.is_word(partition) else []
    said = ask(commands, ["squeue", "-h", "-t", "PD", "--sort=-p,i", *where, "-o", _AHEAD])
    ids, words = [], []
    for line in parse.lines_of(said):
        parts = line.split("|", 5)
        if len(parts) != 6 or not parse.is_number(parts[0]):
            continue
        if parts[0] == job.id:
            break
        job_id, priority, count, gres, cpus, name = parts
        gpus = parse.count_gpus(gres) * max(1, parse.number_of(count))
        asked = fit.plural(gpus, "GPU") if gpus else fit.plural(parse.number_of(cpus), "CPU")
        ids.append(job_id)
        words.append(f"{name} (Slurm {job_id}, {asked}, priority {priority})")
    else:
        return (), ()  # it is not in the list any more
    return tuple(ids), tuple(words)


def _forecast(
    job: JobLine, need: Need, room: tuple[str, str] | None, held: Sequence[Reservation], now: datetime | None,
    *, is_room: bool,
) -> str:  # fmt: skip
    """When it may start, and who says so."""
    said = []
    if job.start:
        left_s = (
            (datetime.fromisoformat(job.start) - now).total_seconds() if now is not None else 0.0
        )
        ahead = f", in {fit.duration_text(left_s)}" if left_s > 0 else ""
        if reason.explain(job.reason).word == "BeginTime":
            return f"not before {job.start}{ahead}, by Slurm's own clock"
        nodes = parse.expand_hosts(job.fields.get("SchedNodeList", ""))
        who = reservation.in_the_way(held, nodes, job.start, need.time_s)
        early = f", which is too early: {who} has them then" if who else ""
        said.append(f"{job.start}{ahead}, by Slurm's own clock and its backfill scheduler{early}")
    if is_room and room is not None:
        when, why = room
        at = "then" if when == job.start else f"at {when}"
        said.append(f"{at} {why}, and there is room if nobody goes first")
    if not said and is_room:
        return "neither Slurm nor the time limits of running jobs tell when"
    return "; ".join(said)


def _start_ns(job: JobLine, room: tuple[str, str] | None, now: datetime | None) -> int | None:
    """The forecast by our own clock: Slurm's scheduler, else when there is room."""
    said = job.start or (room[0] if room is not None else None)
    if said is None or now is None:
        return None
    left_s = (datetime.fromisoformat(said) - now).total_seconds()
    return time.time_ns() + int(max(0.0, left_s) * 1e9)


def _room_at(
    need: Need,
    free: Sequence[Node],
    holders: Sequence[parse.Holder],
    held: Sequence[Reservation],
    now: datetime,
) -> tuple[str, str] | None:
    """The first moment at which running jobs have given back enough, each when its time is over,
    and no reservation has it; and what happens then.
    """
    left = {node.name: node for node in free}
    if need.exclusive or _fits(need, left, held, now):
        return None
    steps = [(datetime.fromisoformat(one.end), one) for one in holders]
    ends: list[tuple[datetime, parse.Holder | Reservation]] = [
        *steps,
        *((one.end, one) for one in held),
    ]
    for when, one in sorted(ends, key=lambda pair: pair[0]):
        if isinstance(one, Reservation):
            why = f"{one.words} is over"
        else:
            left |= {
                name: suggest.given_back(left[name], one) for name in one.nodes if name in left
            }
            why = f"{one.name} (Slurm {one.id}) reaches its time limit at the latest"
        if _fits(need, left, held, when):
            return when.isoformat(), why
    return None


def _fits(need: Need, left: Mapping[str, Node], held: Sequence[Reservation], at: datetime) -> bool:
    taken = reservation.taken(held, at, need.time_s)
    return (
        len(fit.fitting(need, [node for name, node in left.items() if name not in taken]))
        >= need.nodes
    )
