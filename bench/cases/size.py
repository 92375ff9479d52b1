"""Bytes per point at rest, zoom levels included: growth of the database's used pages, beside the
peers' files.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from bench import dataset
from bench.context import Context
from bench.load import load
from bench.peer import Peer
from bench.result import HEADWAY, Measure, Result

ROWS, ROWS_PEER = 500_000, 20_000
SETS: dict[str, tuple[Callable[[int], dataset.Records], float]] = {
    "values that came from float32": (dataset.curves, 9),
    "float64 noise": (dataset.noise, 12),
}


def run(context: Context) -> Iterator[Result]:
    for name, (make, limit) in SETS.items():
        result = Result(f"stored bytes per point, {name}", "bytes")
        result.measures.append(
            Measure(HEADWAY, [_ours(context, make(context.size(ROWS, ROWS // 10)))])
        )
        few = make(context.size(ROWS_PEER, ROWS_PEER // 10))
        result.measures += [
            Measure(peer.name, [_theirs(context, peer, few)]) for peer in context.peers
        ]
        context.absent(result)
        result.at_most(f"at most {limit:g}", result.measures[0].median, limit, "bytes")
        result.notes.append(
            f"Two values per record; measured once, it does not vary. {few.rows:,} records for the peers."
        )
        yield result


def _ours(context: Context, records: dataset.Records) -> float:
    with context.home() as home:
        load(home, dataset.curves(1000), "first")  # tables and indexes that any home has
        before = home.used_bytes()
        load(home, records)
        return (home.used_bytes() - before) / records.points


def _theirs(context: Context, peer: Peer, records: dataset.Records) -> float:
    folder, file = context.folder(f"size-{peer.driver}"), context.folder("set") / "set"
    dataset.save(records, file)
    peer.run("write", folder, file)
    cache = folder / ".cache"
    files = [path for path in folder.rglob("*") if path.is_file() and cache not in path.parents]
    return sum(_data_bytes(path) for path in files) / records.points


def _data_bytes(path: Path) -> int:
    return (
        0
        if path.name in ("result.json", "requirements.txt") or path.suffix == ".log"
        else path.stat().st_size
    )
