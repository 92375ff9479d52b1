"""Reservations and maintenance: which nodes are taken when, so when a job could start. Pure. For
`limit` and others.

Slurm's times have no zone; all of them are by the clock of the machine that its commands run on.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from headway.engines.slurm import parse
from headway.engines.slurm.script import MARGIN_S
from headway.engines.slurm.why.fit import duration_text


@dataclass(frozen=True, slots=True)
class Reservation:
    name: str
    nodes: str  # compact: node[1-2]
    begin: datetime
    end: datetime
    users: str
    is_maintenance: bool

    @property
    def words(self) -> str:
        return f"the {'maintenance' if self.is_maintenance else 'reservation'} {self.name}"

    def holds(self, begin: datetime, time_s: float | None) -> bool:
        """Whether a job that starts then would still run when this one begins. None: it has no
        limit.
        """
        return begin < self.end and (
            time_s is None or begin + timedelta(seconds=time_s) > self.begin
        )


def read(text: str) -> list[Reservation]:
    """`scontrol show reservation -o`."""
    found = []
    for line in parse.lines_of(text):
        told = parse.read_fields(line)
        try:
            begin, end = (
                datetime.fromisoformat(told.get(name, "")) for name in ("StartTime", "EndTime")
            )
        except ValueError:
            continue
        if name := told.get("ReservationName", ""):
            users, maint = told.get("Users") or "some", "MAINT" in told.get("Flags", "")
            found.append(Reservation(name, told.get("Nodes", ""), begin, end, users, maint))
    return found


def taken(
    known: Iterable[Reservation], begin: datetime, time_s: float | None
) -> dict[str, Reservation]:
    """By node, who has it while such a job would run."""
    return {
        node: one
        for one in known
        if one.holds(begin, time_s)
        for node in parse.expand_hosts(one.nodes)
    }


def in_the_way(
    known: Iterable[Reservation], nodes: Collection[str], begin: str, time_s: float | None
) -> str:
    """Of nodes that a job would have from then on: who takes one of them, in words; empty: nobody."""
    held = taken(known, datetime.fromisoformat(begin), time_s)
    return next((held[node].words for node in nodes if node in held), "")


def shorter_s(known: Sequence[Reservation], now: datetime, time_s: float | None) -> float | None:
    """The longest time, in whole minutes, that ends before the first of those that are in its way;
    without the margin that Slurm gets beyond the job's own end.
    """
    ahead = [one.begin for one in known if one.begin > now and one.holds(now, time_s)]
    minutes = int((min(ahead) - now).total_seconds() - MARGIN_S - 60) // 60 if ahead else 0
    return minutes * 60.0 if minutes > 0 else None


def sentence(one: Reservation, own: str, time_s: float | None, now: datetime | None) -> str | None:
    """Its own one; or one that begins before it would have ended: it cannot start in front of that."""
    when = f"from {one.begin.isoformat()} to {one.end.isoformat()}"
    if one.name == own:
        return f"its reservation {one.name} has {one.nodes or 'no nodes'} {when}, for {one.users}"
    if now is None or not one.holds(now, time_s):
        return None
    left_s = max(0.0, (one.begin - now).total_seconds())
    asked = duration_text(time_s) if time_s is not None else "no limit of time"
    shorter = shorter_s([one], now, time_s)
    hint = f"; with --max-duration {shorter / 60:.0f}m it would end before" if shorter else ""
    since = f"in {duration_text(left_s)}" if left_s else "it has begun"
    return f"{one.words} takes {one.nodes} {when}: {since}, and it asks for {asked}{hint}"
