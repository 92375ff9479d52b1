"""The partitions of a cluster: which nodes a job may have there, and for how long. Called by the
engine's `plan`.

What a partition could never give is refused when a job is submitted, and not found out by its end.
Where a limit seems to be against a job, Slurm itself has the last word: a QoS may set a limit of a
partition aside.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headway.engines.protocol import Plan
from headway.engines.slurm import parse, script
from headway.engines.slurm.why.fit import duration_text, plural
from headway.model.errors import RefusedError
from headway.model.limits import RESERVE_MARGIN_S
from headway.settings.nearest import did_you_mean


@dataclass(frozen=True, slots=True)
class Partition:
    name: str
    is_default: bool
    state: str
    time_s_max: float | None  # None: without end
    nodes_max: int | None

    @property
    def is_open(self) -> bool:
        return self.state == "UP"


def read(text: str) -> list[Partition]:
    """`scontrol show partition -o`."""
    found = []
    for line in parse.lines_of(text):
        told = parse.read_fields(line)
        if "PartitionName" not in told:
            continue
        most = told.get("MaxNodes", "")
        found.append(
            Partition(
                told["PartitionName"], told.get("Default") == "YES", told.get("State", "UP"),
                parse.seconds(told.get("MaxTime", "")), int(most) if parse.is_number(most) else None,
            )
        )  # fmt: skip
    return found


def check_names(known: Sequence[Partition], asked: str | None) -> None:
    """RefusedError for a partition that is not there."""
    names = [one.name for one in known]
    for name in asked.split(",") if asked and known else []:
        if name not in names:
            raise RefusedError(
                f"there is no partition {name[:80]!r}{did_you_mean(name, names)}",
                f"partitions: {', '.join(names)}",
            )


def chosen(known: Sequence[Partition], asked: str | None) -> list[Partition]:
    """Those that a job goes to: one, or the first of several that has room, or Slurm's default.
    Empty: not told.
    """
    if not asked:
        return [one for one in known if one.is_default]
    return [one for one in known if one.name in asked.split(",")]


def check(plan: Plan, places: Sequence[Partition], would_take: Callable[[Plan], bool]) -> Plan:
    """RefusedError for what none of them could ever give. The plan may ask for all of their time:
    then the margin that Slurm gets beyond the job's own end is less.
    """
    if not places:
        return plan
    times = [one.time_s_max for one in places]
    longest_s = None if None in times else max(t for t in times if t is not None)
    own_s = plan.max_duration_s
    too_long = longest_s is not None and own_s is not None and own_s > longest_s + RESERVE_MARGIN_S
    if longest_s is not None and not too_long and longest_s < script.time_s(plan):
        plan = replace(plan, options={**plan.options, "time_s_max": longest_s})
    names = " and ".join(one.name for one in places)
    verb = "allows" if len(places) == 1 else "allow"
    sizes = [one.nodes_max for one in places]
    most = None if None in sizes else max(n for n in sizes if n is not None)
    trouble = None
    if too_long and longest_s is not None and own_s is not None:
        allowed = duration_text(longest_s)
        trouble = (
            f"it asks for {duration_text(own_s)}, and partition {names} {verb} {allowed}",
            "ask for less time",
        )
    elif most is not None and len(plan.tasks) > most:
        allowed = plural(most, "node")
        trouble = (
            f"it asks for {len(plan.tasks)} nodes, and partition {names} {verb} {allowed}",
            "ask for fewer",
        )
    if trouble is not None and not would_take(plan):
        raise RefusedError(*trouble)
    return plan
