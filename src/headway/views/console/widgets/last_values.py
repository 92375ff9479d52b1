"""Last values with their curves: `loss 0.312 ▇▆▅▄▃▃▂▂▂▁`. As many as there is room for."""

from typing import Final

from headway.views.console.cells import BOLD, CYAN, RED, Line, cells, flow, plain
from headway.views.console.job_model import Metric
from headway.views.console.theme import Theme
from headway.views.console.widgets.curve import blocks, real
from headway.views.text import format as fmt
from headway.views.text.table import fit

_NAME_COLUMNS_MAX: Final = 24
_CURVE_COLUMNS_MIN: Final = 10
_CURVE_COLUMNS_MAX: Final = 64
_GAP: Final = "   "
_VALUE_COLUMNS: Final = 7  # so that the line does not shift with each value


def metrics(found: dict[str, Metric], columns: int, rows: int, theme: Theme) -> list[Line]:
    if not found or rows < 1:
        return []
    shortest = [_metric(name, one, theme, _CURVE_COLUMNS_MIN) for name, one in found.items()]
    # what the row leaves over goes to the curves of those that share it
    per_row = max(-(-len(shortest) // rows), 1)
    used = max(cells(line) for line in shortest) + len(_GAP)
    spare = (columns - 2) // per_row - used
    room = min(max(_CURVE_COLUMNS_MIN + spare, _CURVE_COLUMNS_MIN), _CURVE_COLUMNS_MAX)
    items = [_metric(name, one, theme, room) for name, one in found.items()]
    return flow(items, columns, rows, gap=_GAP)


def _metric(name: str, metric: Metric, theme: Theme, curve_columns: int) -> Line:
    value = real(metric.last)
    bad = value is not None and value - value != 0.0  # NaN or infinite
    curve = blocks(metric.curve.values(), curve_columns)
    words = fit(theme.safe(name), _NAME_COLUMNS_MAX)
    number = plain(
        f" {theme.safe(fmt.number(metric.last)):<{_VALUE_COLUMNS if curve else 0}}",
        RED if bad else BOLD,
    )
    return (
        (*plain(words), *number, *plain(f" {curve}", CYAN)) if curve else (*plain(words), *number)
    )
