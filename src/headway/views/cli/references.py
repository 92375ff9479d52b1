"""The words that people type for jobs: an id or its ending, a name, `last`, or nothing at all.

Verbs that only look take the newest job of a name and say so on stderr. Verbs that change something
ask first, unless it was an id.
"""

import re
import sys
from typing import Final

from headway.model.errors import HeadwayError, NotFoundError, UsageError
from headway.model.json_types import JsonObject
from headway.views.api.source import Source
from headway.views.cli.dispatch import Call

_WORD: Final = re.compile(r"[A-Za-z0-9_.^~-]{1,128}\Z")
LAST: Final = "last"


def one(call: Call, source: Source) -> str:
    """The id of the one job or array that a verb which only looks is asked about."""
    if len(call.words) > 1 or call.after:
        given = " ".join([*call.words, *(["--", *call.after] if call.after else [])])[:80]
        raise UsageError(
            f"hw {call.command.name} takes one id of a job, not: {given}",
            f"usage: {call.command.usage}",
        )
    return str(found(call, source, call.words[0] if call.words else LAST)["id"])


def several(call: Call, source: Source) -> list[str]:
    """Ids for a verb that only looks at jobs; of none, the last job. Words that mean nothing come
    back as they are: the verb says so, and answers the others.
    """
    if call.after:
        raise UsageError(
            f"hw {call.command.name} takes ids of jobs only", f"usage: {call.command.usage}"
        )
    ids: list[str] = []
    for word in call.words or [LAST]:
        try:
            ids.append(found(call, source, word)["id"])
        except NotFoundError:
            if len(call.words) < 2:
                raise
            ids.append(word)
    return ids


def found(call: Call, source: Source, word: str) -> JsonObject:
    """`{id, uuid, kind, state, said}`; how it was chosen is said on stderr."""
    meant = look_up(source, word)
    if meant["said"] and word == LAST and not call.words:
        call.terminal.say(
            call.terminal.err.safe(f"hw: {meant['said'].replace('last is', 'the last job,')}")
        )
    elif meant["said"]:
        call.terminal.say(call.terminal.err.safe(f"hw: {meant['said']}"))
    return meant


def look_up(source: Source, word: str) -> JsonObject:
    if not _WORD.match(word) or ".." in word:
        raise NotFoundError(
            f'no job has the id "{word[:80]}"',
            "hw ls shows the jobs; a unique ending of an id, a name or `last` will do",
        )
    meant: JsonObject = source.get("/api/find", [("ref", word)])
    return meant


def to_change(call: Call, source: Source, words: list[str], verb: str) -> list[str]:
    """Ids for a verb that changes jobs: what was not named by its id is asked for first."""
    ids: list[str] = []
    for word in dict.fromkeys(words):
        try:
            meant = look_up(source, word)
        except NotFoundError:
            ids.append(word)  # the verb says what is wrong with it, and does the others
            continue
        if meant["said"] and not call.get("yes") and not call.get("dry_run"):
            _ask(call, meant, verb)
        ids.append(str(meant["id"]))
    return ids


def _ask(call: Call, meant: JsonObject, verb: str) -> None:
    said = call.terminal.err.safe(meant["said"])
    if not (sys.stdin and sys.stdin.isatty()):
        raise UsageError(
            f"{said}; hw {verb} wants an id, or --yes", f"for example: hw {verb} {meant['id']}"
        )
    call.terminal.err.write(f"{said}; {verb} it? [y/N] ")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise HeadwayError("nothing was done")
