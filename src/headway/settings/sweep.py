"""Many jobs from one description: `--array` and `array:` give numbers, `matrix:` gives combinations
of parameters.

Called by `jobfile.py` and by `submission.py`. Pure.
"""

import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from headway.model.errors import UsageError
from headway.model.json_types import JsonMapping, JsonObject
from headway.model.limits import ARRAY_JOBS_MAX
from headway.settings import quantity
from headway.settings.nearest import did_you_mean

Row = JsonObject
Where: TypeAlias = Callable[..., str]  # how an error names a key of the file: JobFile.at
_WORDS: Final = ("include", "exclude")
_RANGE: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?\Z")
_FORMS: Final = "valid: 100 (that is 0-99), 0-9, 0-90:10, or 1,4,7-9"


def indices(asked: int | str | list[int], field: str) -> list[int]:
    """The numbers of the jobs. A number alone is how many, counted from 0."""
    if isinstance(asked, list):
        found = asked
    elif isinstance(asked, int) or asked.strip().isdigit():
        found = list(range(quantity.count(asked, field, most=ARRAY_JOBS_MAX)))
    else:
        found = [
            number for part in asked.split(",") for number in _part(part.strip(), asked, field)
        ]
    if not found or len(found) > ARRAY_JOBS_MAX:
        raise _too_many(len(found), field)
    if len(set(found)) != len(found):
        raise UsageError(f"{field}: a number stands there twice", _FORMS)
    return found


def _part(part: str, asked: str, field: str) -> range:
    match = _RANGE.match(part)
    if match is None:
        raise UsageError(f"{field}: {asked[:60]!r} is not a range", _FORMS)
    first = int(match[1])
    last, step = int(match[2] or first), int(match[3] or 1)
    if last < first or step < 1:
        raise UsageError(f"{field}: {part!r} holds no number", _FORMS)
    found = range(first, last + 1, step)
    if len(found) > ARRAY_JOBS_MAX:
        raise _too_many(len(found), field)
    return found


def _agree(row: Row, other: Row) -> bool:
    return all(row[name] == value for name, value in other.items() if name in row)


def rows(matrix: Mapping[str, list[Any]], at: Where, fixed: Row) -> list[Row]:
    """Every combination, in the order of the file, the last parameter fastest; without `exclude`,
    then `include`. An axis that is `fixed` has that one value; the rows to include keep theirs.
    """
    axes = {name: values for name, values in matrix.items() if name not in _WORDS}
    axes |= {name: [value] for name, value in fixed.items() if name in axes}
    for name, values in axes.items():
        if not values or any(isinstance(value, dict) for value in values):
            raise UsageError(
                f"{at(f'matrix.{name}')}: a list of values is needed",
                "for example: lr: [0.1, 0.01]",
            )
    total = 1
    for values in axes.values():
        total *= len(values)
    if total > ARRAY_JOBS_MAX:
        raise _too_many(total, at("matrix"))
    product = (
        [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
        if axes
        else []
    )
    found = _without(product, _listed(matrix, "exclude", axes, at), at, fixed)
    for number, row in enumerate(_listed(matrix, "include", axes, at)):
        missing = [name for name in axes if name not in row]
        if missing:
            raise UsageError(
                f"{at('matrix.include', number)}: {row} has no {missing[0]}",
                "a row names every parameter of the matrix",
            )
        found.append(row)
    if not found or len(found) > ARRAY_JOBS_MAX:
        raise _too_many(len(found), at("matrix"))
    return found


def _listed(matrix: Mapping[str, list[Any]], word: str, axes: JsonMapping, at: Where) -> list[Row]:
    listed = matrix.get(word, [])
    for number, row in enumerate(listed):
        if not isinstance(row, dict) or not row:
            raise UsageError(
                f"{at(f'matrix.{word}', number)}: {row!r:.60} is not a row",
                f"for example: {word}: [{{lr: 0.1, seed: 3}}]",
            )
        unknown = [name for name in row if name not in axes]
        if axes and unknown:
            raise UsageError(
                f'{at(f"matrix.{word}", number, unknown[0])}: the matrix has no "{unknown[0]}"'
                f"{did_you_mean(unknown[0], axes)}",
                f"it has: {', '.join(axes)}",
            )
    return listed


def _without(product: list[Row], excluded: list[Row], at: Where, fixed: Row) -> list[Row]:
    for number, row in enumerate(excluded):
        left = [one for one in product if not _agree(row, one)]
        if len(left) == len(product) and _agree(row, fixed):
            raise UsageError(
                f"{at('matrix.exclude', number)}: no combination has {row}", "correct or remove it"
            )
        product = left
    return product


def _too_many(number: int, field: str) -> UsageError:
    return UsageError(
        f"{field}: that makes {number:,} jobs", f"an array has 1 to {ARRAY_JOBS_MAX:,}"
    )
