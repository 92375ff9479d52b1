"""The table of `hw compare --importance`. Pure; called by the command."""

from headway.model.json_types import JsonObject
from headway.views.text import comparison
from headway.views.text.comparison import Cell, Grid

METHOD = (
    "share of the variance between the values of each key, 90 % interval; rest: of what the keys above it leave; "
    "chance: as much by accident"
)


def grid(answer: JsonObject) -> Grid:
    rows = []
    for key in answer["keys"]:
        trend = key["trend"]
        rows.append(
            [
                Cell(key["key"]),
                Cell(f"{key['share']:.1%}"),
                Cell(f"{key['low']:.1%} – {key['high']:.1%}"),
                Cell(f"{key['rest']:.0%}"),
                Cell("< 0.5 %" if key["chance"] < 0.005 else f"{100 * key['chance']:.1f} %"),
                Cell("" if trend is None else f"{trend:+.2f}"),
                Cell(str(key["values"])),
                Cell(comparison.config_text(key["best"])),
            ]
        )
    titles = ["key", "share", "interval", "rest", "chance", "trend", "values", "best at"]
    return Grid(titles, rows, [False, *[True] * 7], [True] * 8)
