"""Checks of the settings `notify.…`: what is told, to which command and which address. Called by
`schema.py`.
"""

import shlex
from typing import Final
from urllib.parse import urlsplit

from headway.model.errors import UsageError
from headway.model.limits import TAGS_MAX
from headway.settings.nearest import did_you_mean

KINDS: Final = ("ended", "failed", "hung", "slow", "stalled", "started")
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_WORD_CHARS_MAX: Final = 4096


def kinds(value: object, field: str) -> list[str]:
    found = _list(value, field, f"for example: [{', '.join(KINDS[:2])}]")
    for item in found:
        if item not in KINDS:
            raise UsageError(
                f"{field}: {item!r:.60} is not one of {', '.join(KINDS)}{did_you_mean(item, KINDS)}"
            )
    return found


def command(value: object, field: str) -> list[str]:
    """A list of words, or a text that is split into words as a shell does; nothing else of a shell
    is done.
    """
    example = 'for example: ["/usr/local/bin/tell", "--short"]'
    try:
        found = shlex.split(value) if isinstance(value, str) else value
    except ValueError as error:
        raise UsageError(
            f"{field}: {value!r:.60} cannot be split into words: {error}", example
        ) from None
    if not isinstance(found, list) or not found or len(found) > TAGS_MAX:
        raise UsageError(f"{field}: {value!r:.60} is not a command", example)
    for word in found:
        if not isinstance(word, str) or "\0" in word or len(word) > _WORD_CHARS_MAX:
            raise UsageError(f"{field}: {word!r:.60} is not a word of a command", example)
    return found


def webhook_url(value: object, field: str) -> str:
    """The address is never shown whole: it may hold a secret."""
    example = "for example: https://example.org/hook"
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        raise UsageError(f"{field}: is not a web address", example)
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{field}: is not a web address: {error}", example) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise UsageError(f"{field}: is not an http or https address", example)
    if "@" in parts.netloc or parts.fragment:
        raise UsageError(
            f"{field}: holds a user, a password or a fragment, which are not sent", example
        )
    return value


def shown_url(value: str) -> str:
    parts = urlsplit(value)
    return f"{parts.scheme}://{parts.netloc}/********"


def hosts(value: object, field: str) -> list[str]:
    found = _list(value, field, "for example: [localhost, hooks.example.org, example.org:8443]")
    for item in found:
        try:
            parts = urlsplit(f"//{item}" if item.count(":") < 2 or "[" in item else f"//[{item}]")
            fits = (
                bool(parts.hostname)
                and parts.netloc in (item, f"[{item}]")
                and "@" not in item
                and parts.port != 0
            )
        except ValueError:
            fits = False
        if not fits or "*" in item or " " in item:
            raise UsageError(
                f"{field}: {item!r:.60} is not a host, or a host and a port",
                "no address, no pattern",
            )
    return found


def _list(value: object, field: str, example: str) -> list[str]:
    items = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if (
        not isinstance(items, list)
        or len(items) > TAGS_MAX
        or not all(isinstance(item, str) for item in items)
    ):
        raise UsageError(f"{field}: {value!r:.60} is not a list of words", example)
    return [item for item in items if item]
