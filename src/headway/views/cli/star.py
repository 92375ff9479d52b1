"""`hw star ID…`: mark jobs worth coming back to; --remove takes the mark away."""

from headway.views.cli import marks
from headway.views.cli.dispatch import Call


def command(call: Call) -> int:
    words = marks.needs(call, 1, "the id of a job")
    is_set = not call.get("remove")
    said = "starred" if is_set else "not starred any more"
    return marks.change(call, words, lambda _: {"star": is_set}, lambda _: said)
