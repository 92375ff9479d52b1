"""The first line: `● digits-7f3c2  running 0:41   here · 4 processes`, and what is wrong with the
view, if anything.
"""

from collections.abc import Iterator

from headway.views.console.cells import BOLD, DIM, RED, YELLOW, Line, cells, cut, join, plain
from headway.views.console.job_model import Model
from headway.views.console.theme import Theme
from headway.views.text import format as fmt
from headway.views.text import job_text


def head(model: Model, columns: int, theme: Theme) -> Line:
    state = model.state or str(model.job.get("state") or "unknown")
    mark = plain(fmt.STATE_MARKS.get(state, "?"), fmt.STATE_COLOURS.get(state, "35"))
    left = join(
        [mark, plain(theme.safe(model.job_id), BOLD), (("", ""), *_state(model, state, theme))], " "
    )
    right = _trouble(model, theme)
    where = plain(" · ".join(theme.safe(word) for word in _place(model)), DIM)
    wanted = (*left, ("   ", ""), *where)
    if not right:
        return cut(wanted, columns)
    room = columns - cells(right) - 3
    return (*cut(wanted, max(room, 24)), ("   ", ""), *right)


def _state(model: Model, state: str, theme: Theme) -> Line:
    if state == "waiting":
        age_s = job_text.waited_s(model.job, model.now)
        why = job_text.waiting_words(job_text.waiting_of(model.job), model.now)
        return plain(theme.safe(f" waiting for {fmt.clock(age_s)}{', ' if why else ''}{why}"))
    if state == "unknown":
        return plain(
            f" unknown, last heard {fmt.duration(fmt.age_s(job_text.heard_at(model.job), model.now))} ago"
        )
    if state == "held" and (until := (model.job.get("hold") or {}).get("until")):
        return plain(f" held until {fmt.local_time(until, model.now)}")
    return plain(f" {state} {fmt.clock(model.elapsed_s)}")


def _place(model: Model) -> Iterator[str]:
    if model.job.get("cluster"):
        yield fmt.place(model.job)
    yield fmt.plural(model.ranks, "process")
    if model.job.get("gpus"):
        yield fmt.plural(int(model.job["gpus"]), "GPU")
    if model.job.get("page"):
        yield str(model.job["page"])


def _trouble(model: Model, theme: Theme) -> Line:
    if model.lost_since is not None:
        ago = fmt.clock((model.now - model.lost_since).total_seconds())
        return plain(f"no server for {ago}; the job goes on", RED)
    return plain(theme.safe(model.notice), YELLOW) if model.notice else ()
