"""`hw rename ID NAME`: another name. The id stays: folders and notes go by it."""

from headway.model.errors import UsageError
from headway.views.cli import marks
from headway.views.cli.dispatch import Call


def command(call: Call) -> int:
    words = marks.needs(call, 2, "the id of a job and its new name")
    if len(words) > 2:
        raise UsageError("hw rename takes one id and one name", f"usage: {call.command.usage}")
    ref, name = words
    return marks.change(call, [ref], lambda _: {"name": name}, lambda _: f"is called {name}")
