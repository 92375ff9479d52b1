"""The nearest valid word to a misspelt one, for errors that say "did you mean". Called by settings
and by the views.
"""

from collections.abc import Iterable


def nearest(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The choice most like `word`, or None when none is close enough to be worth a guess."""
    import difflib  # here: it costs milliseconds at import, and only an error needs it

    found = difflib.get_close_matches(word[:100].lower(), list(choices), n=1, cutoff=cutoff)
    return found[0] if found else None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """`; did you mean "X"?`, or nothing."""
    found = nearest(word, choices)
    return f'; did you mean "{found}"?' if found else ""
