"""`hw doctor`: looks at this machine, this home and its server; each line says how it is and what
to type.

Every check stands by itself: one that fails, or cannot be made, does not keep the others from being
told.
"""

import errno
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headway import __version__
from headway.home import paths as homes
from headway.home.database_path import NETWORK_FILE_SYSTEMS, file_system_of
from headway.home.ownership import home_problem
from headway.model.errors import HeadwayError, UsageError
from headway.model.limits import DOCTOR_CHECK_S, GIB, KIB, MIB, SECRET_BYTES_MIN
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt
from headway.views.text.terminal import GREEN, RED, YELLOW, Output

OK, WARNING, PROBLEM = "ok", "warning", "problem"
_COLOURS: Final = {OK: GREEN, WARNING: YELLOW, PROBLEM: RED}
_PYTHON_MIN: Final = (3, 11)
_FREE_WARNING_BYTES: Final = 2 * GIB
_FREE_PROBLEM_BYTES: Final = 100 * MIB
_FILES_WARNING: Final = 10_000
_FILES_PROBLEM: Final = 200
_PROBE_BYTES: Final = 64 * KIB
_LEFT_AFTER_S: Final = 3600.0  # what is left of a job so long after its end is stuck
_TASK: Final = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-[0-9]{1,9}-[a-z][a-z0-9-]{0,40}\Z"
)
_CLOCK_MIN_S: Final = 1_735_689_600  # 2025-01-01: earlier than this program


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    level: str
    text: str
    advice: str = ""


def command(call: Call) -> int:
    if call.words or call.after:
        raise UsageError("hw doctor takes no words", f"usage: {call.command.usage}")
    if call.get("secrets"):
        return _secrets(call)
    if call.get("acknowledge"):
        return _acknowledge(call)
    findings = list(examine())
    if call.as_json:
        call.terminal.put_json(
            [
                {"check": f.check, "level": f.level, "text": f.text, "advice": f.advice}
                for f in findings
            ]
        )
    else:
        for line in report(findings, call.terminal.out):
            call.terminal.put(line)
    return 1 if any(f.level == PROBLEM for f in findings) else 0


def _secrets(call: Call) -> int:
    """Names only: a value that is no secret today may be one tomorrow."""
    from headway.settings.layers import load
    from headway.wire.redact import has_secret_shape, is_secret_name

    named = load(Path.cwd()).get("secret_names")
    rows = []
    for name, value in sorted(os.environ.items()):
        why = ""
        if name in named:
            why = "secret_names"
        elif is_secret_name(name):
            why = "its name"
        elif has_secret_shape(value):
            why = "its shape"
        short = len(value.encode(errors="replace")) < SECRET_BYTES_MIN
        rows.append({"name": name, "masked": bool(why) and not short, "why": why, "short": short})
    if call.as_json:
        call.terminal.put_json(rows)
        return 0
    out = call.terminal.out
    for title, wanted in (("masked", True), ("not masked", False)):
        call.terminal.put(f"{title}:")
        for row in rows:
            if row["masked"] != wanted:
                continue
            note = f"  by {row['why']}" if row["why"] else ""
            if row["why"] and row["short"]:
                note = f"  by {row['why']}, but shorter than {SECRET_BYTES_MIN} bytes"
            call.terminal.put(f"  {out.safe(str(row['name']))}{note}")
    call.terminal.say("to mask another one: hw config set secret_names NAME, or in headway.yaml")
    return 0


def _acknowledge(call: Call) -> int:
    source = call.source()
    for notice in source.get("/api/server").get("notices") or []:
        call.terminal.say(call.terminal.err.safe(f"{notice.get('time')}  {notice.get('text')}"))
    done = source.post("/api/server/acknowledge", {})
    if call.as_json:
        call.terminal.put_json(done)
    else:
        call.terminal.say(
            f"{fmt.plural(int(done['acknowledged']), 'notice')} will not be shown again"
        )
    return 0


def report(findings: list[Finding], out: Output) -> list[str]:
    lines = []
    for found in findings:
        level = out.style(f"{found.level:<8}", _COLOURS[found.level])
        lines.append(f"{level} {found.check:<12} {out.safe(found.text)}")
        if found.advice:
            lines.append(f"{'':<21} → {out.safe(found.advice)}")
    counts = {level: sum(f.level == level for f in findings) for level in (PROBLEM, WARNING)}
    bad = [fmt.plural(count, level) for level, count in counts.items() if count]
    return [*lines, "", ", ".join(bad) if bad else "all is well"]


def examine() -> Iterator[Finding]:
    """All findings, in an order in which the first problem is the one to mend first."""
    checks: list[Callable[[], Iterator[Finding]]] = [
        _python, _path, _home, _clock, _socket, _settings, _database, _server, _spools, _agents, _git, _gpu,
    ]  # fmt: skip
    if home_problem(homes.unchecked_home()):  # told by `_home`; nothing in it is looked at
        checks = [_python, _path, _home, _git, _gpu]
    for check in checks:
        name = check.__name__.removeprefix("_")
        try:
            yield from check()
        except HeadwayError as error:
            yield Finding(name, PROBLEM, "; ".join(error.message.split("\n")), error.hint)
        except OSError as error:
            yield Finding(name, PROBLEM, f"cannot be checked: {error}")


def _python() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    text = f"Python {version}, Headway {__version__}, {sys.executable}"
    if sys.version_info < _PYTHON_MIN:
        yield Finding(
            "python",
            PROBLEM,
            text,
            f"Headway needs Python {_PYTHON_MIN[0]}.{_PYTHON_MIN[1]} or newer",
        )
        return
    yield Finding("python", OK, text)


def _path() -> Iterator[Finding]:
    found = shutil.which("hw")
    mine = Path(sys.executable).parent / "hw"
    if found is None:
        advice = (
            f'export PATH="{mine.parent}:$PATH"'
            if mine.exists()
            else "install Headway: pip install headway"
        )
        yield Finding("path", WARNING, "hw is not on PATH", advice)
    elif mine.exists() and not os.path.samefile(found, mine):
        yield Finding("path", WARNING, f"hw on PATH is another one: {found}", f"this one is {mine}")
    else:
        yield Finding("path", OK, f"hw is {found}")


def _clock() -> Iterator[Finding]:
    now = time.time()
    shown = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now))
    if now < _CLOCK_MIN_S:
        yield Finding(
            "clock",
            PROBLEM,
            f"the clock says {shown}, before this program was written",
            "set the clock",
        )
        return
    database = homes.Paths(homes.home()).db
    if database.exists() and database.stat().st_mtime > now + 60:
        yield Finding(
            "clock",
            WARNING,
            f"the clock says {shown}; the database was written later",
            "set the clock",
        )
        return
    yield Finding("clock", OK, shown)


def _home() -> Iterator[Finding]:
    home = homes.unchecked_home()
    if problem := home_problem(home):
        yield Finding("home", PROBLEM, *problem)
        return
    found = home.stat()
    if stat.S_IMODE(found.st_mode) & 0o077:
        mode = f"{stat.S_IMODE(found.st_mode):04o}"
        yield Finding(
            "home", PROBLEM, f"{home} is open to others (mode {mode})", f"chmod 700 {home}"
        )
    elif not os.access(home, os.W_OK | os.X_OK):
        yield Finding("home", PROBLEM, f"{home} cannot be written", f"chmod 700 {home}")
    else:
        yield Finding("home", OK, f"{home}, mode 0700")
    yield from _file_system(home)
    yield from _space(home)


def _file_system(home: Path) -> Iterator[Finding]:
    kind, database = file_system_of(home), homes.Paths(home).db
    if kind in NETWORK_FILE_SYSTEMS and database.parent == home:
        yield Finding(
            "file system", WARNING, f"the home is on a network file system ({kind}); a database there can be damaged",
            "set HEADWAY_HOME or the setting database_folder to a folder on a local disk",
        )  # fmt: skip
    elif kind in NETWORK_FILE_SYSTEMS:
        yield Finding(
            "file system", OK, f"the home is on {kind}; the database is in {database.parent}"
        )
    elif kind:
        yield Finding("file system", OK, kind)


def _space(home: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(home).free
    level = OK
    if free < _FREE_PROBLEM_BYTES:
        level = PROBLEM
    elif free < _FREE_WARNING_BYTES:
        level = WARNING
    advice = "hw gc --older-than 30d frees what old jobs take" if level != OK else ""
    yield Finding("space", level, f"{fmt.size(free)} free", advice)
    yield from _files(home)
    yield from _writes(home)


def _files(home: Path) -> Iterator[Finding]:
    """Inodes: a disk with room for bytes may have none for another file."""
    found = os.statvfs(home)
    if not found.f_files:
        return  # a file system without a fixed number of them
    level = OK
    if found.f_favail < _FILES_WARNING:
        level = PROBLEM if found.f_favail < _FILES_PROBLEM else WARNING
    advice = "hw gc --older-than 30d removes files of old jobs; df -i shows who has them"
    text = f"room for {found.f_favail:,} more files (inodes)"
    yield Finding("files", level, text, advice if level != OK else "")


def _writes(home: Path) -> Iterator[Finding]:
    """A quota shows only when one writes: a file is made, filled, synced and removed."""
    probe = home / f".doctor-{os.getpid()}"
    try:
        fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, bytes(_PROBE_BYTES))
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        mends = {
            errno.EDQUOT: "your quota is used up: quota -s shows it; hw gc --older-than 30d frees room",
            errno.ENOSPC: "free some room: hw gc --older-than 30d; df -h and df -i show what is full",
            errno.EROFS: "the file system is read-only: mount it again, or set HEADWAY_HOME",
        }
        advice = mends.get(error.errno or 0, "look at the disk: dmesg, df -h, df -i")
        yield Finding("writes", PROBLEM, f"{home} cannot be written: {error.strerror}", advice)
        return
    finally:
        probe.unlink(missing_ok=True)
    yield Finding("writes", OK, f"{fmt.size(_PROBE_BYTES)} written and synced")


def _socket() -> Iterator[Finding]:
    from headway.home.connect import server_path

    path = server_path(homes.home())
    mode = stat.S_IMODE(path.parent.stat().st_mode)
    yield Finding("socket", OK, f"{path}, folder mode {mode:04o}")


def _settings() -> Iterator[Finding]:
    from headway.settings.layers import BUILT_IN, load
    from headway.views.cli.config import IDLE

    settings = load(Path.cwd())
    if idle := settings.idle(Path.cwd()):
        yield Finding(
            "settings", WARNING, f"no effect: {', '.join(idle)} in the project's file", IDLE
        )
    changed = sum(origin != BUILT_IN for _, _, origin in settings.rows())
    yield Finding(
        "settings", OK, f"{changed} changed; hw config shows them" if changed else "all built-in"
    )


def _database() -> Iterator[Finding]:
    """Read here and not by the server: a database that cannot be opened is why there may be no
    server.
    """
    path = homes.Paths(homes.home()).db
    if not path.exists():
        yield Finding("database", OK, "none yet; it is made by the first command")
        return
    import sqlite3

    deadline = time.monotonic() + DOCTOR_CHECK_S
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0)
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
    try:
        rows = [str(row[0]) for row in connection.execute("PRAGMA quick_check(5)")]
    except sqlite3.OperationalError as error:
        if "interrupt" not in str(error):
            raise HeadwayError(
                f"{path} cannot be read: {error}", "hw server logs may say more"
            ) from None
        rows = []
    except sqlite3.DatabaseError as error:
        raise HeadwayError(
            f"{path} is not a sound database: {error}", f"keep it aside: mv {path} {path}.bad"
        ) from None
    finally:
        connection.close()
    if rows not in (["ok"], []):
        raise HeadwayError(
            f"{path} is damaged: {rows[0]}", "hw server stop, then keep a copy of the file"
        )
    checked = "checked" if rows else f"too large to be checked in {DOCTOR_CHECK_S:g} s"
    yield Finding("database", OK, f"{fmt.size(path.stat().st_size)}, {checked}")


def _server() -> Iterator[Finding]:
    """Started if need be: whether it can start is what a person wants to know."""
    from headway.views.api.source import Source
    from headway.views.cli.server import clock_words, lag_words

    source = Source.connect()
    started = time.monotonic()
    try:
        found = source.get("/api/server")
    finally:
        source.close()
    took_ms = (time.monotonic() - started) * 1000
    text = f"running, pid {found.get('pid')}, version {found.get('version')}, answers in {took_ms:.0f} ms"
    if found.get("version") != __version__:
        advice = "hw server stop; the next command starts the new one, and jobs do not notice"
        yield Finding("server", WARNING, f"{text}; this is version {__version__}", advice)
        return
    yield Finding("server", OK, text)
    if step := clock_words(found):
        yield Finding("clock", WARNING, step, "is it right now? timedatectl")
    if lag := lag_words(found):
        advice = "a disk that hangs, or a machine without room? hw server logs; if it comes again, report it"
        yield Finding("server", WARNING, lag, advice)
    for notice in found.get("notices") or ():
        yield Finding(
            "database",
            WARNING,
            f"{notice.get('time')}: {notice.get('text')}",
            "data of that time may be missing; seen? hw doctor --acknowledge",
        )


def _agents() -> Iterator[Finding]:
    """How agents reach the server: only worth a word where some are on other machines."""
    from headway.views.api.source import Source
    from headway.views.cli.server import agent_words

    source = Source.connect()
    try:
        found = source.get("/api/server")
    finally:
        source.close()
    if words := agent_words(found):
        troubles = found.get("way_troubles") or []
        text = f"{words}; {troubles[0]}" if troubles else words
        level = WARNING if troubles or (found.get("agents") or {}).get("error") else OK
        advice = "hw config set agent_address HOST:PORT, where the nodes can reach it; the folder works meanwhile"
        yield Finding("agents", level, text, advice if level is WARNING else "")


def _spools() -> Iterator[Finding]:
    """Folders of tasks whose job is over, or is not known here: their data have gone nowhere."""
    paths = homes.Paths(homes.home())
    try:
        names = [name for name in os.listdir(paths.spool) if _TASK.match(name)]
    except FileNotFoundError:
        names = []
    if not names or not paths.db.exists():
        yield Finding("spools", OK, f"{fmt.plural(len(names), 'task')} with data on the way")
        return
    left = sorted(set(names) - _at_work(paths.db, names))
    if not left:
        yield Finding("spools", OK, f"{fmt.plural(len(names), 'task')} with data on the way")
        return
    size = sum(path.lstat().st_size for name in left for path in (paths.spool / name).rglob("*"))
    which = f"{paths.spool / left[0]}" + (f" and {len(left) - 1} more" if len(left) > 1 else "")
    yield Finding(
        "spools", WARNING,
        f"{fmt.plural(len(left), 'task')} of no open job, with {fmt.size(size)} that no server has taken: {which}",
        "hw server logs may say why; each folder holds what its job wrote; when you need it no more: rm -r FOLDER",
    )  # fmt: skip


def _at_work(database: Path, names: list[str]) -> set[str]:
    """Of these tasks, those whose job is open, or ended a moment ago."""
    import sqlite3

    since_ns = time.time_ns() - int(_LEFT_AFTER_S * 1e9)
    connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0)
    try:
        found = set()
        for name in names:
            row = connection.execute(
                "SELECT ended_ns FROM jobs WHERE uuid = ? AND deleted_ns IS NULL", (name[:36],)
            ).fetchone()
            if row is not None and (row[0] is None or row[0] > since_ns):
                found.add(name)
        return found
    except sqlite3.DatabaseError:
        return set(names)  # told by `_database`; nothing follows from it here
    finally:
        connection.close()


def _git() -> Iterator[Finding]:
    found = shutil.which("git")
    if found is None:
        yield Finding(
            "git", WARNING, "not found: jobs are kept without commit and diff", "install git"
        )
        return
    yield Finding("git", OK, found)


def _gpu() -> Iterator[Finding]:
    present = Path("/dev/nvidiactl").exists()
    try:
        import pynvml
    except ImportError:
        if present:
            advice = "pip install 'headway[gpu]', or say how many there are: HEADWAY_GPUS=4"
            yield Finding(
                "gpu", WARNING, "there is an NVIDIA driver, but no library to ask it", advice
            )
        else:
            yield Finding("gpu", OK, "none; -n N means N processes")
        return
    try:
        pynvml.nvmlInit()
        count = int(pynvml.nvmlDeviceGetCount())
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        level = WARNING if present else OK
        yield Finding("gpu", level, f"none that NVML can see ({error}); -n N means N processes")
        return
    yield Finding("gpu", OK, f"{fmt.plural(count, 'GPU')}; -n N asks for N of them")
