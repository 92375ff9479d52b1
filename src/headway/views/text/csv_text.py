"""Rows as CSV that a spreadsheet opens as text and numbers, never as a formula (B19). Called by
views that export.
"""

import csv
import io
from collections.abc import Iterable, Sequence

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def cell(text: str) -> str:
    """Foreign text: a quote in front keeps a spreadsheet from computing it. Numbers stay numbers."""
    if not text.startswith(_FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return "'" + text
    return text


def to_csv(rows: Iterable[Sequence[str]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([cell(text) for text in row] for row in rows)
    return file.getvalue()
