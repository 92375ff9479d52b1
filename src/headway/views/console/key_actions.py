"""What a key does to the view of one job. Pure: changes the model, and returns what the loop must
do, if anything.
"""

from dataclasses import replace
from typing import Final

from headway.views.console.job_model import Model
from headway.views.console.log_buffer import Choice
from headway.views.text import format as fmt

LEAVE, INTERRUPT, TERMINATE = "leave", "interrupt", "terminate"
_PAN_COLUMNS: Final = 16
_TYPED_CHARS_MAX: Final = 200
_NEXT_LEVEL: Final = {0: 20, 20: 30, 30: 40, 40: 0}
_TYPING: Final = ("filter", "rank")


def press(model: Model, key: str) -> str | None:
    mode = model.place.mode
    if mode == "ask":
        return _answer(model, key)
    if key == "ctrl-c":
        return _on_ctrl_c(model)
    if model.leaving:
        model.leaving, model.notice = False, ""
    if mode in _TYPING:
        _type(model, key)
        return None
    if mode == "help":  # any key closes it
        model.place.mode = model.place.before
        return LEAVE if key == "q" else None
    if key in ("?", "h"):
        model.place.before, model.place.mode = mode, "help"
        return None
    if key == "x":
        _ask_to_stop(model)
        return None
    if mode == "ranks":
        return _choose(model, key)
    if mode == "curves":
        if key in ("esc", "c", "enter"):
            model.place.mode = "log"
        return LEAVE if key == "q" else None
    return _in_log(model, key)


def _on_ctrl_c(model: Model) -> str | None:
    """In a viewer two of them leave, as with `tail -f`, and the job never hears of it. In `hw run`
    the job is ours: the first asks, and after an interrupt the next one terminates.
    """
    if model.watched:
        if model.leaving or model.state in fmt.ENDED:
            return LEAVE
        model.leaving = True
        model.notice = "ctrl-c again leaves; the job goes on (x stops it)"
        return None
    if model.interrupted:
        return TERMINATE
    _ask_to_stop(model)
    return None


def _ask_to_stop(model: Model) -> None:
    if model.state in fmt.ENDED:
        model.notice = f"it has {model.state} already"
        return
    model.place.before, model.place.mode = model.place.mode, "ask"


def _answer(model: Model, key: str) -> str | None:
    """In `hw run` a second Ctrl-C interrupts, as the first does without a live view; there it is
    said that the next one terminates. In a viewer it leaves.
    """
    on_ctrl_c = LEAVE if model.watched else INTERRUPT
    deeds = {"i": INTERRUPT, "t": TERMINATE, "q": LEAVE, "ctrl-c": on_ctrl_c}
    if key in deeds or key in ("esc", "n", "enter"):
        model.place.mode = model.place.before
    deed = deeds.get(key)
    if deed == INTERRUPT and not model.watched:
        model.interrupted = True
    return deed


def _type(model: Model, key: str) -> None:
    place = model.place
    model.notice = ""
    if key == "enter" and place.mode == "rank" and place.typed and int(place.typed) >= model.ranks:
        # said where he looks, who may type another
        model.notice, place.typed = f"there is no rank {place.typed}", ""
        return
    if key in ("esc", "enter"):
        mode = place.mode
        typed = place.typed if key == "enter" else ""
        place.mode, place.typed = "log", ""
        if mode == "filter":
            _show(model, replace(model.log.choice, text=typed.strip()))
        else:
            _show(model, replace(model.log.choice, rank=int(typed) if typed else None))
        return
    if key == "backspace":
        place.typed = place.typed[:-1]
    elif key == "ctrl-u":
        place.typed = ""
    else:
        text = " " if key == "space" else key
        if len(text) == 1 and text.isprintable() and len(place.typed) < _TYPED_CHARS_MAX:
            place.typed += text if place.mode == "filter" or text in "0123456789" else ""
    if place.mode == "filter":  # each key shows what it finds
        _show(model, replace(model.log.choice, text=place.typed.strip()))


def _choose(model: Model, key: str) -> str | None:
    place = model.place
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -place.page, "pgdn": place.page}
    steps |= {"home": -place.choices, "g": -place.choices, "end": place.choices, "G": place.choices}
    if key in steps:
        place.chosen = min(max(place.chosen + steps[key], 0), max(place.choices - 1, 0))
    elif key == "enter":
        place.mode = "log"
        _show(model, replace(model.log.choice, rank=place.chosen))
    elif key == "esc":
        place.mode = "log"
    return LEAVE if key == "q" else None


def _in_log(model: Model, key: str) -> str | None:
    place, log = model.place, model.log
    model.notice = ""
    if key == "q":
        return LEAVE
    if key == "/":
        place.mode, place.typed = "filter", log.choice.text
    elif key == "r" and model.ranks > 1:
        place.mode, place.typed = "rank", ""
    elif key == "enter" and model.ranks > 1:
        place.mode, place.chosen = "ranks", log.choice.rank or 0
    elif key == "c" and (model.metrics or model.usage_curves):
        place.mode = "curves"
    elif key == "l":
        _show(model, replace(log.choice, level=_NEXT_LEVEL.get(log.choice.level, 0)))
    elif key == "esc":
        return _back(model)
    elif key == "space":
        place.bottom = log.end if place.bottom is None else None
    else:
        _scroll(model, key)
    return None


def _back(model: Model) -> str | None:
    """One step back: from a filter to all lines, from old lines to the newest, from a job to the
    list that it was opened from.
    """
    place = model.place
    if model.log.choice != Choice() or place.pan or place.bottom is not None:
        place.pan, place.bottom = 0, None
        _show(model, Choice())
        return None
    return LEAVE if model.listed else None


def _scroll(model: Model, key: str) -> None:
    place, log = model.place, model.log
    steps = {
        "up": -1,
        "k": -1,
        "down": 1,
        "j": 1,
        "pgup": 1 - place.page,
        "pgdn": place.page - 1,
        "b": 1 - place.page,
    }
    bottom = log.end if place.bottom is None else place.bottom
    if key in steps:
        lowest = log.first + min(place.page, len(log.shown))
        moved = max(bottom + steps[key], lowest)
        place.bottom = None if moved >= log.end and steps[key] > 0 else moved
        if place.bottom is not None and place.bottom >= log.end and steps[key] < 0:
            place.bottom = None  # all of it is in sight: there is nothing to scroll to
    elif key in ("home", "g"):
        place.bottom, place.pan = log.first + min(place.page, len(log.shown)), 0
    elif key in ("end", "G"):
        place.bottom, place.pan = None, 0
    elif key == "right":
        place.pan = max(min(place.pan + _PAN_COLUMNS, place.pan_max), place.pan)
    elif key == "left":
        place.pan = max(min(place.pan, place.pan_max) - _PAN_COLUMNS, 0)


def _show(model: Model, choice: Choice) -> None:
    """Another choice starts at the newest line: a place in the old one means nothing there."""
    if choice != model.log.choice:
        model.log.choose(choice)
        model.place.bottom = None
