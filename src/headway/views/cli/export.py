"""`hw export`: the tables of `hw sql` as Parquet files in a folder."""

from pathlib import Path
from typing import Final

from headway.model.errors import HeadwayError, RefusedError, UsageError
from headway.model.limits import EXPORT_TIMEOUT_S
from headway.settings.nearest import did_you_mean
from headway.views.cli import compare
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt

TABLES: Final = ("jobs", "attempts", "config", "metrics", "usage", "events", "logs", "findings")
_FOLDER: Final = "export"


def command(call: Call) -> int:
    tables = call.get("tables") or list(TABLES)
    for name in tables:
        if name not in TABLES:
            raise UsageError(
                f'there is no table "{name[:60]}"{did_you_mean(name, TABLES)}',
                "tables: " + " ".join(TABLES),
            )
    folder = Path(call.get("output") or _FOLDER)
    paths = {name: folder / f"{name}.parquet" for name in tables}
    taken = [path for path in paths.values() if path.exists()]
    if taken and not call.get("force"):
        raise RefusedError(
            f"{taken[0]} is there already", "another folder with -o, or write over it with --force"
        )
    source = call.source()
    chosen = compare.body_of(call, source)
    written = []
    for name, path in paths.items():
        data = source.post_raw(
            "/api/export", {"table": name, "jobs": chosen}, wait_s=EXPORT_TIMEOUT_S
        )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except OSError as error:
            raise HeadwayError(f"{path} cannot be written: {error.strerror}") from None
        written.append({"table": name, "file": str(path), "bytes": len(data)})
        if not call.as_json:
            call.terminal.put(call.terminal.out.safe(f"{path}  {fmt.size(len(data))}"))
    if call.as_json:
        call.terminal.put_json(written)
    return 0
