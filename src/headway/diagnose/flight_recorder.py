"""Reads what PyTorch's flight recorder has written, and says who is missing in which collective.
Called by `hw why --logs` and by the diagnosis of an attempt.

The files are pickles. A pickle may run code when it is read, so this reader knows no class and no
function: only dictionaries, lists, tuples, numbers, texts and None. A file that wants more is refused.
"""

import io
import pickle  # noqa: TID251  (others wrote it; no name in it is ever looked up)
import pickletools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from headway.model.rank_set import ranks_text

BYTES_MAX = 64 << 20
ENTRIES_MAX = 200_000
_HEAD = b"\x80"  # protocol 2 and later begin so
_KEYS = (b"entries", b"version")


class NoDumpError(ValueError):
    """It is no such file, or one that must not be read."""


class Call(msgspec.Struct):
    """One collective as one rank saw it."""

    group: str
    number: int  # of the group's collectives
    name: str  # all_reduce
    sizes: str
    state: str  # scheduled, started, completed
    created_ns: int


class Dump(msgspec.Struct):
    """What one rank has recorded."""

    name: str  # of the file
    rank: int | None
    calls: list[Call]


class Missing(msgspec.Struct):
    """`ranks` have not come to a collective in which `others` wait, or have called another one."""

    cause: str
    text: str
    evidence: list[str]
    rank: int | None
    confidence: float


class _Plain(pickle.Unpickler):
    """Refuses everything that is not plain data."""

    def find_class(self, module: str, name: str) -> Any:
        raise NoDumpError(f"it names {module}.{name}: only plain data is read")

    def persistent_load(self, pid: Any) -> Any:
        raise NoDumpError("it refers to something outside of it")


def is_dump(head: bytes) -> bool:
    """Whether the first bytes of a file look like one."""
    return head.startswith(_HEAD) and any(key in head[:4096] for key in _KEYS)


def read(name: str, data: bytes) -> Dump:
    """NoDumpError: it is none, is damaged, or wants to run something."""
    if len(data) > BYTES_MAX:
        raise NoDumpError(f"it is larger than {BYTES_MAX >> 20} MiB")
    try:
        # names are looked for before anything is built
        for code, _, _ in pickletools.genops(data):
            if code.name in _RUNS:
                raise NoDumpError(f"it has the instruction {code.name}: only plain data is read")
        found = _Plain(io.BytesIO(data)).load()
    except NoDumpError:
        raise
    # a damaged pickle fails in any way that pickle can
    except Exception as error:
        raise NoDumpError(f"it cannot be read: {error}") from error
    entries = found.get("entries") if isinstance(found, dict) else None
    if not isinstance(entries, list):
        raise NoDumpError("it has no list of entries")
    calls = [call for entry in entries[:ENTRIES_MAX] if (call := _call(entry)) is not None]
    return Dump(name, _rank(name, found), calls)


_RUNS = frozenset((
    "GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "REDUCE", "BUILD", "EXT1", "EXT2",
    "EXT4", "PERSID", "BINPERSID",
))  # fmt: skip


def _rank(name: str, found: Mapping[str, Any]) -> int | None:
    """Files are named by a prefix and the rank."""
    digits = ""
    for char in reversed(name):
        if not char.isdigit():
            break
        digits = char + digits
    if digits:
        return int(digits)
    rank = found.get("rank")
    return rank if isinstance(rank, int) else None


def _call(entry: Any) -> Call | None:
    if not isinstance(entry, dict) or entry.get("is_p2p"):
        return None
    number = entry.get("collective_seq_id", entry.get("seq_id"))
    if not isinstance(number, int):
        return None
    group = entry.get("process_group") or ("0", "default_pg")
    return Call(
        group=str(group[0]) if isinstance(group, tuple | list) and group else str(group),
        number=number,
        name=str(entry.get("profiling_name") or "?").rpartition(":")[2],
        sizes=str(entry.get("input_sizes") or ""),
        state=str(entry.get("state") or "?"),
        created_ns=int(entry.get("time_created_ns") or 0),
    )


def judge(dumps: Sequence[Dump]) -> Missing | None:
    """Who is missing, or calls another collective than the others; None: nobody, as far as is seen."""
    ranked = [dump for dump in dumps if dump.rank is not None]
    groups = sorted({call.group for dump in ranked for call in dump.calls})
    found = [one for group in groups for one in _judge_group(group, ranked)]
    return found[0] if found else None


def _judge_group(group: str, dumps: Sequence[Dump]) -> Iterator[Missing]:
    calls = {
        int(dump.rank or 0): {call.number: call for call in dump.calls if call.group == group}
        for dump in dumps
    }
    members = {rank: mine for rank, mine in calls.items() if mine}
    if len(members) < 2:
        return
    last = {rank: max(mine) for rank, mine in members.items()}
    # the first collective that is not over for everybody
    first_seen = max(min(mine) for mine in members.values())
    for number in range(first_seen, max(last.values()) + 1):
        called = {rank: mine[number] for rank, mine in members.items() if number in mine}
        absent = sorted(rank for rank in members if last[rank] < number)
        kinds: dict[tuple[str, str], list[int]] = {}
        for rank, call in called.items():
            kinds.setdefault((call.name, call.sizes), []).append(rank)
        if len(kinds) > 1:
            yield _divergence(group, number, kinds)
            return
        if absent and called:
            yield _stall(
                group, number, absent, called, {rank: members[rank][last[rank]] for rank in absent}
            )
            return


def _stall(
    group: str,
    number: int,
    absent: list[int],
    called: Mapping[int, Call],
    before: Mapping[int, Call],
) -> Missing:
    name = next(iter(called.values())).name
    who = ranks_text(absent)
    verb = "waits" if len(called) == 1 else "wait"
    others = ranks_text(sorted(called))
    text = f"{who} never came to {name} number {number} of group {group}, in which {others} {verb}"
    evidence = [f"{ranks_text([rank])} last called {call.name} number {call.number} ({call.state})"
                for rank, call in list(before.items())[:4]]  # fmt: skip
    # the majority is never named as the culprit
    rank = absent[0] if len(absent) == 1 and len(called) > 1 else None
    return Missing(
        "collective_stall", text, evidence, rank, 0.9 if len(absent) < len(called) else 0.7
    )


def _divergence(group: str, number: int, kinds: Mapping[tuple[str, str], list[int]]) -> Missing:
    ordered = sorted(kinds.items(), key=lambda item: len(item[1]))
    words = [_calls(sorted(ranks), name, sizes) for (name, sizes), ranks in ordered]
    odd = ordered[0][1]
    rank = odd[0] if len(odd) == 1 and len(ordered[-1][1]) > 1 else None
    text = f"the ranks call different collectives as number {number} of group {group}: {'; '.join(words)}"
    return Missing("collective_divergence", text, words, rank, 0.9)


def _calls(ranks: list[int], name: str, sizes: str) -> str:
    verb = "calls" if len(ranks) == 1 else "call"
    return f"{ranks_text(ranks)} {verb} {name} {sizes}".rstrip()
