"""Who writes and who is quiet, in one line; and the list of ranks that `enter` opens.

With hundreds of ranks one looks for the few that are different: those that stopped writing, ended
or failed. Ranks in the same situation are folded together.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headway.model.json_types import JsonObject
from headway.views.console.cells import BOLD, DIM, RED, YELLOW, Line, cut, plain
from headway.views.console.job_model import Model
from headway.views.console.theme import Theme
from headway.views.text import format as fmt
from headway.views.text import job_text

_SINGULAR: Final = {"write": "writes", "have not written yet": "has not written yet"}
_QUIET_S: Final = 30.0  # silence that is worth a word
# quiet for at least this long, together
_AGES_S: Final = (30, 60, 120, 300, 600, 1200, 3600, 7200, 14400, 86400)


@dataclass(frozen=True, slots=True)
class Standing:
    """How one rank stands: words that ranks in the same situation share, and how bad it is."""

    rank: int
    words: str
    order: int  # the worst first
    code: str = ""


def strip(model: Model, columns: int) -> list[Line]:
    """`ranks  3 failed (exit code 1) · 17 quiet for 2 min · 62 others write`; nothing while all
    ranks write.
    """
    if model.ranks < 2 or not model.answered:
        return []
    groups: dict[str, list[Standing]] = {}
    for one in standings(model):
        groups.setdefault(one.words, []).append(one)
    if set(groups) <= {"write"} or set(groups) == {"have not written yet"}:
        return []
    spans: list[tuple[str, str]] = [("  ", "")]
    for number, group in enumerate(sorted(groups.values(), key=lambda group: group[0].order)):
        who = "all ranks" if len(groups) == 1 else fmt.ranks([one.rank for one in group])
        who = _some(group) if len(who) > columns // 2 else who
        spans += [
            (" · " if number else "", DIM),
            (who, group[0].code),
            (f" {_verb(group)}", group[0].code or DIM),
        ]
    return [cut(tuple(spans), columns)]


def _verb(group: list[Standing]) -> str:
    """`rank 0 writes`, `ranks 1–3 write`."""
    words = group[0].words
    return _SINGULAR.get(words, words) if len(group) == 1 else words


def _some(group: list[Standing]) -> str:
    """The first few, and how many more."""
    if group[0].order > 3:
        return f"{len(group)} ranks"
    return f"{fmt.ranks([one.rank for one in group[:3]])} and {len(group) - 3} more"


def standings(model: Model) -> list[Standing]:
    known = {
        int(p["rank"]): p for p in job_text.processes(model.job) if isinstance(p.get("rank"), int)
    }
    started = fmt.moment(model.job.get("started_at")) or model.judged_at
    return [_standing(rank, known.get(rank, {}), model, started) for rank in range(model.ranks)]


def _standing(rank: int, process: JsonObject, model: Model, started: datetime) -> Standing:
    if rank in model.exits or process.get("ended_at"):
        ended = model.exits.get(rank, process)
        code = ended.get("exit_code")
        signal = ended.get("signal")
        if code == 0 and signal is None:
            return Standing(rank, "ended", 3, DIM)
        return Standing(rank, f"failed ({fmt.exit_words(code, signal)})", 0, RED)

    wrote = model.wrote.get(rank)
    silent_s = (model.judged_at - (wrote or started)).total_seconds()
    if silent_s < _QUIET_S:
        return Standing(rank, "write" if wrote else "have not written yet", 4)
    age_s = max((age for age in _AGES_S if age <= silent_s), default=_AGES_S[0])
    colour = YELLOW if len(model.wrote) > 1 else ""
    return Standing(rank, f"quiet for over {_age(age_s)}", 2, colour)


def _age(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 3600 else f"{seconds // 3600} h"


def table(model: Model, columns: int, rows: int, theme: Theme) -> list[Line]:
    """The list of ranks, with the chosen one in sight."""
    place = model.place
    known = {
        int(p["rank"]): p for p in job_text.processes(model.job) if isinstance(p.get("rank"), int)
    }
    found = standings(model)
    place.choices = len(found)
    place.chosen = min(max(place.chosen, 0), max(len(found) - 1, 0))
    first = min(max(place.chosen - (rows - 1) // 2, 0), max(len(found) - (rows - 1), 0))
    lines = [
        cut(
            plain(f"   {'rank':>4}  {'pid':>7}  {'node':<12}  {'wrote':>8}  last line", BOLD),
            columns,
        )
    ]
    for one in found[first : first + rows - 1]:
        process = known.get(one.rank, {})
        wrote = model.wrote.get(one.rank)
        ago = (
            f"{fmt.clock(max((model.judged_at - wrote).total_seconds(), 0.0))} ago"
            if wrote
            else "—"
        )
        node = theme.safe(str(process.get("node") or "—"))[:12]
        said = theme.safe(model.said.get(one.rank, ""))
        note = f"{one.words}: " if one.order < 3 else ""
        front = "›" if one.rank == found[place.chosen].rank else " "
        text = f" {front} {one.rank:>4}  {process.get('pid') or '—':>7}  {node:<12}  {ago:>8}  "
        code = BOLD if front == "›" else ""
        lines.append(cut(((text, code), (note, one.code), (said, code)), columns))
    return lines
