"""The last line: the keys that do something here, or what is being typed or asked."""

from headway.views.console.cells import BOLD, DIM, REVERSE, YELLOW, Line, Span, cells, cut, plain
from headway.views.console.job_model import Model
from headway.views.console.theme import Theme
from headway.views.text import format as fmt

Key = tuple[str, str]
_KEPT = 3  # keys at the end that stay in the narrowest window: help and the ways out


def footer(model: Model, columns: int, theme: Theme) -> Line:
    mode = model.place.mode
    if mode in ("filter", "rank"):
        asked = (
            "show lines with: " if mode == "filter" else f"show one rank, 0 to {model.ranks - 1}: "
        )
        typed = plain(theme.safe(model.place.typed))
        hint = "   enter keeps it, esc shows all" if mode == "filter" else "   enter shows it"
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
            ((f" Stop {asked_of}? ", f"{BOLD};{YELLOW}"), *key_line(keys, columns - 14)), columns
        )
    leave = "back" if model.listed else "leave"
    if mode == "ranks":
        return key_line(
            [("↑↓", "choose"), ("enter", "open the rank"), ("esc", "back"), ("q", leave)], columns
        )
    if mode in ("curves", "help"):
        return key_line([("esc", "back to the log"), ("q", leave)], columns)
    return key_line(_of_log(model, "enter" if theme.ascii_only else "↵"), columns)


def _of_log(model: Model, enter: str) -> list[Key]:
    """In order of use: what has no room falls off in the middle, never the ways out."""
    paused = model.place.bottom is not None
    keys = [("/", "filter"), ("l", "level"), ("space", "go on" if paused else "pause")]
    if model.ranks > 1:
        keys[1:1] = [("r", "rank"), (enter, "ranks")]
    keys += [("c", "curves"), ("↑↓←→", "scroll")]
    if model.watched:
        stop = [] if model.state in fmt.ENDED else [("x", "stop")]
        return [*keys, *stop, ("?", "keys"), ("q", "back" if model.listed else "leave")]
    stop_word = "terminate" if model.interrupted else "stop"
    return [*keys, ("?", "keys"), ("q", "leave running"), ("ctrl-c", stop_word)]


def key_line(keys: list[Key], columns: int) -> Line:
    """As many keys as have room; those in the middle fall off first."""
    keys = list(keys)
    while len(keys) > _KEPT and cells(_line(keys, "  ")) > columns:
        del keys[-_KEPT - 1]
    wide = _line(keys, "   ")
    return wide if cells(wide) <= columns else cut(_line(keys, "  "), columns)


def _line(keys: list[Key], gap: str) -> Line:
    spans: list[Span] = []
    for number, (key, words) in enumerate(keys):
        spans += [(gap if number else " ", ""), (key, BOLD), (f" {words}", DIM)]
    return tuple(spans)
