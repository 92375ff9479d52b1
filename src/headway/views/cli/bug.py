"""`hw bug ID…`: mark jobs whose results are not to be trusted; --remove takes the mark away."""

from headway.views.cli import marks
from headway.views.cli.dispatch import Call


def command(call: Call) -> int:
    words = marks.needs(call, 1, "the id of a job")
    is_set = not call.get("remove")
    said = "marked as having a bug" if is_set else "not marked as having a bug any more"
    return marks.change(call, words, lambda _: {"bug": is_set}, lambda _: said)
