"""`hw describe ID TEXT…`: say in words what a job was for or what came of it."""

from headway.views.cli import marks
from headway.views.cli.dispatch import Call


def command(call: Call) -> int:
    ref, *words = marks.needs(call, 1, "the id of a job and a text")
    text = " ".join(words)
    if not words and not call.get("remove"):
        marks.needs(call, 2, "a text; to take the old one away: --remove")
    said = text or "no description any more"
    return marks.change(call, [ref], lambda _: {"description": text}, lambda _: said)
