"""The last line: the keys that do something here, or what is being typed or asked."""

from headway.views.console.cells import BOLD, DIM, REVERSE, YELLOW, Line, Span, cells, cut, plain
from headway.views.console.job_model import Model
from headway.views.console.theme import Theme
from headway.views.text import format as fmt

Key = tuple[str, str]


def footer(model: Model, columns: int, theme: Theme) -> Line:
    mode = model.place.mode
    if mode in ("filter", "rank"):
        asked = (
            "show lines with: " if mode == "filter" else f"show one rank, 0 to {model.ranks - 1}: "
        )
        typed = plain(theme.safe(model.place.typed))
        hint = "   enter shows, esc shows all"
        wrong = (
            (f"   {theme.safe(model.notice)}", YELLOW)
            if model.notice and mode == "rank"
            else (hint, DIM)
        )
        return cut(((f" {asked}", BOLD), *typed, (" ", REVERSE), wrong), columns)
    if mode == "ask":
        asked_of = theme.safe(fmt.suffix(model.job_id))
        keys = [("i", "interrupt"), ("t", "terminate"), ("q", "leave running"), ("esc", "go on")]
        return cut(
            ((f" Stop {asked_of}? ", f"{BOLD};{YELLOW}"), *_keys(keys, columns - 14)), columns
        )
    if mode == "ranks":
        return _keys(
            [("↑↓", "choose"), ("enter", "open the rank"), ("esc", "back"), ("q", "leave")], columns
        )
    return _keys(_of_log(model, "enter" if theme.ascii_only else "↵"), columns)


def _of_log(model: Model, enter: str) -> list[Key]:
    """In order of use: what has no room falls off in the middle, never the ways out."""
    paused = model.place.bottom is not None
    keys = [("/", "filter"), ("l", "level"), ("space", "go on" if paused else "pause")]
    if model.ranks > 1:
        keys[1:1] = [("r", "rank"), (enter, "ranks")]
    keys.append(("↑↓←→", "scroll"))
    return [
        *keys,
        ("q", "leave" if model.watched else "leave running"),
        ("ctrl-c", "terminate" if model.interrupted else "stop"),
    ]


def _keys(keys: list[Key], columns: int) -> Line:
    keys = list(keys)
    while len(keys) > 2 and cells(_line(keys, "  ")) > columns:
        del keys[-3]
    wide = _line(keys, "   ")
    return wide if cells(wide) <= columns else cut(_line(keys, "  "), columns)


def _line(keys: list[Key], gap: str) -> Line:
    spans: list[Span] = []
    for number, (key, words) in enumerate(keys):
        spans += [(gap if number else " ", ""), (key, BOLD), (f" {words}", DIM)]
    return tuple(spans)
