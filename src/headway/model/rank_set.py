"""Sets of ranks as people write them: `0-2,4-7`. Used by diagnosis and views."""

from collections.abc import Iterable

RUNS_SHOWN = 12


def rank_set(numbers: Iterable[int]) -> str:
    """Sorted, runs of neighbours folded."""
    parts: list[str] = []
    first = last = None
    for number in sorted(set(numbers)):
        if last is not None and number == last + 1:
            last = number
            continue
        if first is not None:
            parts.append(_run(first, last))
        first = last = number
    if first is not None:
        parts.append(_run(first, last))
    return ",".join(parts)


def _run(first: int, last: int | None) -> str:
    return f"{first}" if last is None or first == last else f"{first}-{last}"


def ranks_text(numbers: Iterable[int]) -> str:
    """`rank 5`, `ranks 0-2,4`; of many that lie apart, the first few."""
    ranks = set(numbers)
    runs = rank_set(ranks).split(",")
    more = f" and more ({len(ranks)} in all)" if len(runs) > RUNS_SHOWN else ""
    return f"rank{'' if len(ranks) == 1 else 's'} {','.join(runs[:RUNS_SHOWN])}{more}"
