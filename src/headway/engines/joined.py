"""What an engine saw of each task of an attempt, as one observation of the attempt. Pure. Called by
engines.
"""

from collections import Counter
from collections.abc import Mapping

from headway.engines.protocol import Observation, ObservedState

# The first of these that a task has is the attempt's: as long as something of it runs, it runs.
_ORDER: tuple[ObservedState, ...] = ("running", "starting", "unknown", "gone", "ended")


def join(seen: Mapping[str, Observation]) -> Observation:
    """By task name; there is at least one. A task without a spool has ended, and all of it was
    sent.
    """
    if len(seen) == 1:
        return next(iter(seen.values()))
    state = min((_state(one) for one in seen.values()), key=_ORDER.index)
    never = [name for name, one in seen.items() if one.detail.get("started") is False]
    detail: dict[str, object] = {}
    if len(never) == len(seen):
        return Observation("gone", _words(seen), {"started": False})
    if never:
        detail["unstarted"] = never
    if any(one.detail.get("salvage") for one in seen.values()):
        detail["salvage"] = True
        if any("silence_s" in one.detail for one in seen.values()):
            detail["silence_s"] = max(one.detail.get("silence_s", 0.0) for one in seen.values())
    told = [(name, one.detail["end"]) for name, one in seen.items() if one.detail.get("end")]
    if told:
        detail["end"] = {**told[0][1], "text": f"{told[0][0]}: {told[0][1]['text']}"}
    if all(_is_sent(one) for one in seen.values()):
        detail["drained"] = True
    return Observation(state, _words(seen), {"started": True, **detail})


def _state(one: Observation) -> ObservedState:
    return "ended" if _is_sent(one) else one.state


def _is_sent(one: Observation) -> bool:
    no_spool = (
        one.state == "gone" and one.detail.get("started") is None and not one.detail.get("salvage")
    )
    return bool(one.detail.get("drained")) or no_spool


def _words(seen: Mapping[str, Observation]) -> str:
    """`3 shim alive, 1 ended`: the engine's own words, counted."""
    counts = Counter(one.state_word for one in seen.values())
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {word}" for word, count in counts.most_common(3))
