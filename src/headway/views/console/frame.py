"""One picture of a job: `frame(model, size, theme)` gives the lines from top to bottom. Pure;
called by `view`.

The log gets what the others leave, and at least a third of the rows; what is not known takes no
room.
"""

from headway.views.console.cells import EMPTY, Line, Size
from headway.views.console.job_model import Model
from headway.views.console.theme import Theme
from headway.views.console.widgets import help_page, ranks
from headway.views.console.widgets.bars import bars
from headway.views.console.widgets.charts import charts
from headway.views.console.widgets.footer import footer
from headway.views.console.widgets.header import head
from headway.views.console.widgets.last_values import metrics
from headway.views.console.widgets.log_tail import rule, tail
from headway.views.console.widgets.usage_lines import usage


def frame(model: Model, size: Size, theme: Theme) -> list[Line]:
    """Exactly as many lines as the terminal has rows."""
    columns, rows = size
    top = [head(model, columns, theme)]
    room = max(rows * 2 // 3 - 3, 0)
    above = list(
        model.remember(
            "bars", size, lambda: bars(model.progress, columns, max(min(rows // 6, room), 1), theme)
        )
    )
    above += metrics(model.metrics, columns, max(rows // 10, 1), theme)
    above += usage(model.usage, model.usage_curves, columns)
    known = (
        size,
        int(model.judged_at.timestamp()),
        len(model.exits),
        model.answered,
    )  # who is quiet changes with the second
    above += model.remember("strip", known, lambda: ranks.strip(model, columns))
    top += above[:room]
    left = max(rows - len(top) - 2, 0)
    mode = model.place.mode
    if mode == "ranks":
        body = ranks.table(model, columns, left, theme)
    elif mode == "curves":
        body = charts(model, columns, left, theme)
    elif mode == "help":
        ctrl_c = help_page.CTRL_C_WATCH if model.watched else help_page.CTRL_C_RUN
        body = help_page.page((*help_page.JOB, ctrl_c), columns, left)
    else:
        body = tail(model, columns, left)
    lines = [*top, rule(model, columns, theme), *body]
    lines += [EMPTY] * (rows - 1 - len(lines))
    return [*lines[: rows - 1], footer(model, columns, theme)]
