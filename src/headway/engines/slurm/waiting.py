"""Why a job waits on Slurm: reason, position, what is free and does not fit, limits, forecast. Called by the engine.

Each question may fail by itself (no accounting, no rights): then that part is not told, and the rest is.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

from headway.engines.protocol import Node, Waiting
from headway.engines.slurm import answer, fit, limit, reason, sooner
from headway.engines.slurm.answer import JobLine, NodeLine
from headway.engines.slurm.command import Commands
from headway.engines.slurm.fit import Need
from headway.model.errors import HeadwayError

ROOM: Final = ("Resources", "Priority", "None", "ReqNodeNotAvail", "Constraints", "NodeNotAvail")
# It is in nobody's way and nobody in its: who stands ahead, or what is free, does not matter.
_ASIDE: Final = (
    "JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "Dependency", "DependencyNeverSatisfied", "BeginTime",
)  # fmt: skip
_AHEAD: Final = "%A|%Q|%D|%b|%C|%j"
_HOLDERS: Final = "JobID:20,EndTime:24,NumNodes:8,tres-alloc:160,tres-per-node:80,Name:80,NodeList:400"


def explain(job: JobLine, nodes: Sequence[NodeLine], commands: Commands) -> Waiting:
    """`job`: as `scontrol show job` tells it; `nodes`: of its partition, as they are now."""
    if job.state == "running":
        return Waiting(f"{job.word}: Slurm has started it on {job.nodes}, and its agents have not spoken yet")
    told, need = reason.explain(job.reason), Need.of(job)
    free = tuple(sooner.free_of(node) for node in nodes)
    now = _now(commands)
    ask = partial(_ask, commands)
    limits = limit.explain(told.word, job, ask, now)
    own_s = sooner.own_delay_s(need, limit.partition(job, ask))
    is_room = told.word in ROOM
    ahead, words = ((), ()) if told.word in _ASIDE else _ahead(job, commands)
    waits_for = job.fields.get("Dependency", "") if told.word.startswith("Dependency") else ""
    text = told.text + (f" ({waits_for})" if answer.is_word(waits_for) else "")
    text += f"; {told.hint.replace('ID', job.number or job.id)}" if told.hint else ""
    return Waiting(
        f"{told.word}: {text}",
        ahead,
        free,
        sooner.suggest(job, need, free, commands, now, own_s) if is_room or (told.never and limits) else (),
        needs=need.words(),
        fit=fit.explain(need, free) if is_room else "",
        limits=limits,
        start=_forecast(job, need, free, commands, now, is_room=is_room),
        ahead_words=words,
    )


def _ask(commands: Commands, argv: Sequence[str]) -> str:
    try:
        return commands.run(argv)
    except HeadwayError:
        return ""


def _now(commands: Commands) -> datetime | None:
    """By the clock of the machine that Slurm's commands run on: its times have no zone."""
    try:
        return datetime.fromisoformat(_ask(commands, ["date", "+%Y-%m-%dT%H:%M:%S"]).strip())
    except ValueError:
        return None


def _ahead(job: JobLine, commands: Commands) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ids of waiting jobs of its partition with a higher place, and the same with what they ask for."""
    partition = job.fields.get("Partition", "").partition(",")[0]
    where = ["-p", partition] if answer.is_word(partition) else []
    said = _ask(commands, ["squeue", "-h", "-t", "PD", "--sort=-p,i", *where, "-o", _AHEAD])
    ids, words = [], []
    for line in said.splitlines():
        parts = line.split("|", 5)
        if len(parts) != 6 or not parts[0].isdigit():
            continue
        if parts[0] == job.id:
            break
        job_id, priority, count, gres, cpus, name = parts
        gpus = answer.count_gpus(gres) * max(1, answer.number_of(count))
        asked = fit.plural(gpus, "GPU") if gpus else fit.plural(answer.number_of(cpus), "CPU")
        ids.append(job_id)
        words.append(f"{name} (Slurm {job_id}, {asked}, priority {priority})")
    else:
        return (), ()  # it is not in the list any more
    return tuple(ids), tuple(words)


def _forecast(
    job: JobLine, need: Need, free: Sequence[Node], commands: Commands, now: datetime | None, *, is_room: bool
) -> str:
    """When it may start, and who says so."""
    said = []
    if job.start:
        left_s = (datetime.fromisoformat(job.start) - now).total_seconds() if now is not None else 0.0
        ahead = f", in {fit.duration_text(left_s)}" if left_s > 0 else ""
        if reason.explain(job.reason).word == "BeginTime":
            return f"not before {job.start}{ahead}, by Slurm's own clock"
        said.append(f"{job.start}{ahead}, by Slurm's own clock and its backfill scheduler")
    own = _room_at(need, free, answer.read_holders(_ask(commands, ["squeue", "-h", "-t", "R", "-O", _HOLDERS])))
    if is_room and own is not None:
        when, who = own
        at = "then" if when == job.start else f"at {when}"
        said.append(f"{at} {who} reaches its time limit at the latest, and there is room if nobody goes first")
    if not said and is_room:
        return "neither Slurm nor the time limits of running jobs tell when"
    return "; ".join(said)


def _room_at(need: Need, free: Sequence[Node], holders: Sequence[answer.Holder]) -> tuple[str, str] | None:
    """The first moment at which running jobs have given back enough: each ends when its time is over at the latest."""
    left = {node.name: node for node in free}
    if len(fit.fitting(need, free)) >= need.nodes:
        return None
    for holder in sorted(holders, key=lambda one: one.end):
        for name in holder.nodes:
            if name in left:
                left[name] = sooner.given_back(left[name], holder)
        if len(fit.fitting(need, list(left.values()))) >= need.nodes:
            return holder.end, f"{holder.name} (Slurm {holder.id})"
    return None
