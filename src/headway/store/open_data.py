"""SQL and Parquet over the store, in a child process that can be ended: a query may take any time
and memory, and the server must go on. Called by the server's API, in a thread.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from headway.home.paths import Paths
from headway.model.errors import HeadwayError, RefusedError, UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import EXPORT_POINTS_MAX, EXPORT_TIMEOUT_S, SQL_CHARS_MAX, SQL_TIMEOUT_S

TABLES = ("jobs", "attempts", "config", "metrics", "usage", "events", "logs", "findings")
_ERRORS: dict[str, type[HeadwayError]] = {"usage": UsageError, "refused": RefusedError}


def check_installed() -> None:
    missing = [name for name in ("duckdb", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise RefusedError(
            f"this needs {' and '.join(missing)}, which the server's Python does not have",
            "pip install 'headway[sql]', then hw server stop: the next command starts a new one",
        )


def query(paths: Paths, text: str, jobs: list[int]) -> JsonObject:
    """`{columns rows cut}`."""
    if len(text) > SQL_CHARS_MAX:
        raise UsageError(f"a query may have {SQL_CHARS_MAX:,} characters, not {len(text):,}")
    return _ask(paths, {"query": text, "jobs": jobs}, SQL_TIMEOUT_S)


def export(paths: Paths, table: str, jobs: list[int]) -> bytes:
    """A table as a Parquet file."""
    if table not in TABLES:
        raise UsageError(f'there is no table "{table[:60]}"', "tables: " + " ".join(TABLES))
    with tempfile.TemporaryDirectory(prefix="export-", dir=paths.home) as folder:
        path = Path(folder) / f"{table}.parquet"
        request = {
            "table": table,
            "jobs": jobs,
            "output": str(path),
            "points_max": EXPORT_POINTS_MAX,
        }
        _ask(paths, request, EXPORT_TIMEOUT_S)
        return path.read_bytes()


def _ask(paths: Paths, request: JsonObject, timeout_s: float) -> JsonObject:
    check_installed()
    full = {**request, "home": str(paths.home), "database": str(paths.db), "timeout_s": timeout_s}
    env = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    child = subprocess.Popen(
        [sys.executable, "-I", "-m", "headway.store.open_data_child"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**env, "LC_ALL": "C.UTF-8"}, cwd="/",
        start_new_session=True,
    )  # fmt: skip
    try:
        out, err = child.communicate(json.dumps(full).encode(), timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise RefusedError(
            f"it took longer than {timeout_s:g} s and was ended",
            "choose fewer jobs: -e EXPERIMENT, ids or --where before the query",
        ) from None
    finally:
        child.kill()
        child.communicate()  # closes the pipes, too
    if not out:
        words = err.decode(errors="replace").strip().splitlines()
        last = words[-1][:200] if words else f"exit code {child.returncode}"
        raise RefusedError(
            f"the query ended without an answer: {last}", "it may have needed too much memory"
        )
    answer: JsonObject = json.loads(out)
    error = answer.get("error")
    if error is not None:
        raise _ERRORS.get(error["code"], HeadwayError)(error["message"], error["hint"])
    return answer
