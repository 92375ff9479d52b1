"""The run of one process: where it writes, its facts, its notes, its end. Called by client/api.py
and client/hooks.py.

One per process; a forked child starts over with streams of its own. Facts are kept until they can
be written, up to a limit. No method that training can reach raises (P1); the ones that may say so.
"""

from __future__ import annotations

import os
import sys
import time
from _thread import get_ident

from headway import _fork_gate
from headway.client.backoff import Backoff
from headway.client.config import Config
from headway.client.interrupt import raise_if_signal
from headway.client.metric import Metrics, make_log
from headway.client.metric_values import clean_text
from headway.client.own_rank import started_with
from headway.client.spool_path import Place, from_environment
from headway.model.limits import (
    ARGV_TOLD_CHARS_MAX,
    CONFIG_WRITES_MAX,
    EXCEPTIONS_MAX,
    FRAME_BYTES_MAX,
    KIB,
    NOTES_MAX,
    TAG_CHARS_MAX,
    TAGS_MAX,
    UNSAID_FACTS_MAX,
)
from headway.model.record import FACT
from headway.spool.files import OS_FILES, Files
from headway.spool.stream_names import facts_name, logs_name, media_name, metrics_name, new_rand
from headway.spool.writer import MetricSegment, StreamWriter
from headway.wire.frame import encode_json
from headway.wire.identity import process_start

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, MutableMapping
    from types import TracebackType
    from typing import Any, Protocol

    from headway.client.attach import Attachment
    from headway.model.json_types import JsonObject

    class Part(Protocol):
        """Something of a process that has a file or counts of its own: progress, log records,
        timings.
        """

        def tell(self) -> None: ...  # what is not told yet; never raises

        def close(self) -> None: ...  # at the end, and in a forked child; never raises


CONFIG_BYTES_PER_S = 32 * KIB
TRACEBACK_SHORT_CHARS = 8000
_ID_WAIT_S = 0.3  # at the end of a short script on a terminal, for its id
INTERRUPTED = 130  # what a shell says of a program that ended by Ctrl-C


class Run:
    def __init__(
        self,
        environ: "MutableMapping[str, str] | None" = None,
        files: Files = OS_FILES,
        warn: "Callable[[str], None] | None" = None,
    ) -> None:
        self.environ = os.environ if environ is None else environ
        self.files = files
        self._warn = warn or _to_stderr
        self.is_off = self.environ.get("HEADWAY_DISABLED", "") not in ("", "0")
        self.place: Place | None = None
        self.attachment: Attachment | None = None
        # hooks, which api.py knows and tests do not want
        self.on_start: Callable[[Run], None] | None = None
        self.exit_code: int | None = None  # what finish() or an uncaught exception says of the end
        self.number = 0  # of this run in this process
        self._is_finished = False  # the next `init` begins another run
        self.resting = False  # a run is over, and only `init` or `log` begins another one
        self._makes_job = False  # a job of its own, though the process belongs to one
        self._has_told_id = False
        self._tags: list[str] = []
        self._secret_names: list[str] | None = None
        # the environment they were found in, and they
        self._secrets: tuple[dict[Any, Any], list[str]] = ({}, [])
        self.parts: list[Part] = []
        self.lock = _fork_gate  # no fork while it is held
        self.opener = 0  # the thread that opens a stream now; holds the lock
        self.backoff = Backoff()  # of opening streams
        self.config = Config(self)
        self.metrics = Metrics(self)
        self.log = make_log(self.metrics)
        self._begin()

    def _begin(self) -> None:
        """What a new process, a forked child and a run after `finish` start from."""
        self._facts: StreamWriter | None = None
        self._rand = ""
        self._starting = False
        self._trouble = OSError("not started")  # why the last start failed
        self._unsaid: list[JsonObject] = []
        self._lost_facts = 0
        self._noted: set[str] = set()
        self._exceptions = 0
        self._configs = 0
        self._config_data: Any = None  # as told last
        self._arguments: JsonObject = {}  # of the program, as it has parsed them
        self._config_is_new = False
        self._config_next_s = 0.0

    # -- starting

    @property
    def has_started(self) -> bool:
        return self._facts is not None

    def start(self) -> None:
        """Find the spool, open the stream of facts and say hello. Raises OSError when that cannot
        be done now.
        """
        with self.lock:
            if self._facts is not None:
                return
            if self.resting:
                raise OSError("this run is over")
            if self._starting or not self.backoff.is_over():
                raise OSError(self._trouble.errno, str(self._trouble.strerror or self._trouble))
            self._starting = True
            try:
                with self.opening():
                    self._start()
            # P1: whatever it is, the caller only knows how to wait and count
            except Exception as error:
                raise_if_signal(error)
                self._trouble = (
                    error
                    if isinstance(error, OSError)
                    else OSError(0, f"{type(error).__name__}: {error}")
                )
                self.backoff.failed()
                self.note("start", f"nothing can be recorded now ({error}); training goes on")
                raise self._trouble from error
            finally:
                self._starting = False

    def _start(self) -> None:
        if self.place is None:
            found = None if self._makes_job else from_environment(self.environ)
            self.place = found or self._attach()
        self._rand = new_rand()
        self._facts = self.open_stream("facts", more=encode_json(FACT, self._hello()))
        if self.on_start is not None:
            self.on_start(self)

    def _attach(self) -> Place:
        return self._attachment().make()

    def _attachment(self) -> "Attachment":
        if self.attachment is None:
            from headway.client.attach import Attachment

            self.attachment = Attachment(self.environ, self.files)
            self.attachment.number = self.number
        return self.attachment

    def opening(self) -> "_Opening":
        """While a stream is being opened, by this thread: what its signal handlers log waits until
        that is done.
        """
        return _Opening(self)

    def open_stream(self, kind: str, segment: int = 0, more: bytes = b"") -> "Any":
        """A stream of this process; the folder is made again if somebody removed it (F34). Raises
        OSError.
        """
        place, pid = self.place, os.getpid()
        assert place is not None
        make, name = StreamWriter, facts_name(place.rank, pid, self._rand)
        if kind == "metrics":
            make, name = MetricSegment, metrics_name(place.rank, pid, self._rand, segment)
        elif kind == "logs":
            name = logs_name(place.rank, pid, self._rand, segment)
        elif kind == "media":
            name = media_name(place.rank, pid, self._rand, segment)
        opening = {
            "kind": kind,
            "rank": place.rank,
            "pid": pid,
            "start": process_start(),
            "segment": segment,
        }
        try:
            return make(place.task_dir, name, opening, self.files, more)
        except FileNotFoundError:
            self._make_folder(place.task_dir)
            return make(place.task_dir, name, opening, self.files, more)

    def _make_folder(self, task_dir: str) -> None:
        """Again, and the one above it as well, which may have gone with it. Raises OSError."""
        try:
            self.files.mkdir(task_dir, 0o700)
        except FileNotFoundError:
            self.files.mkdir(os.path.dirname(task_dir), 0o700)
            self.files.mkdir(task_dir, 0o700)

    def _hello(self) -> "JsonObject":
        from headway.wire.redact import mask_argv

        place = self.place
        assert place is not None
        argv, left = [], ARGV_TOLD_CHARS_MAX
        for word in mask_argv(started_with(), self.secrets(), self.secret_names()):
            argv.append(clean_text(word[:left]))
            left -= len(argv[-1])
            if left <= 0:
                break
        try:
            cwd = os.getcwd()
        except OSError:
            cwd = ""  # it was removed under us
        return {
            "type": "hello", "time_ns": time.time_ns(), "rank": place.rank, "local_rank": place.local_rank,
            "world_size": place.world_size, "pid": os.getpid(), "start": process_start(),
            "python": sys.version.partition(" ")[0], "executable": clean_text(sys.executable or ""),
            "prefix": clean_text(sys.prefix), "argv": argv, "cwd": clean_text(cwd),
        }  # fmt: skip

    # -- secrets

    def secret_names(self) -> list[str]:
        """Names that the submitter called secret, from task.json."""
        if self._secret_names is None and self.place is not None:
            self._secret_names = _secret_names(self.place.task_dir)
        return self._secret_names or []

    def secrets(self) -> list[str]:
        """Values that may not be written anywhere; looked for anew when a variable has changed:
        some are set late.
        """
        # comparing os.environ itself would decode all of it
        variables = getattr(self.environ, "_data", self.environ)
        seen, values = self._secrets
        if seen != variables:
            from headway.wire.redact import secret_values

            seen = dict(variables)
            values = secret_values(self.environ, self.secret_names())
            # the names are known then
            self._secrets = (seen, values) if self.place is not None else ({}, [])
        return values

    def masker(self) -> "Callable[[str], str]":
        from headway.wire.redact import mask_text

        values = self.secrets()
        return lambda text: mask_text(text, values)

    # -- facts

    def fact(self, kind: str, **fields: object) -> bool:
        """Write a fact, now or when it becomes possible. True when nothing is left waiting. Never
        raises.
        """
        if self.is_off:
            return False
        with self.lock:
            self._unsaid.append({"type": kind, "time_ns": time.time_ns(), **fields})
            if len(self._unsaid) > UNSAID_FACTS_MAX:
                del self._unsaid[1 if self._unsaid[0]["type"] in ("config", "tags") else 0]
                self._lost_facts += 1
            return self.say()

    def say(self) -> bool:
        """Write the facts that wait. Never raises."""
        with self.lock:
            try:
                if self._facts is not None and self._facts.size() is None:
                    self._open_again()
                self.start()
                assert self._facts is not None
                while self._unsaid:
                    fact = self._unsaid.pop(0)
                    try:
                        self._facts.append(_encode(fact))
                    except OSError:
                        self._unsaid.insert(0, fact)
                        raise
                if self._lost_facts:
                    lost, self._lost_facts = self._lost_facts, 0
                    self._facts.append_fact({
                        "type": "gap", "stream": self._facts.name, "records": lost, "points": 0, "bytes": 0,
                        "reason": "facts could not be written",
                    })  # fmt: skip
                return True
            except OSError as error:
                raise_if_signal(error)
                return False  # they wait; the next fact or look tries again
            # P1: a fact that cannot be encoded is lost, training goes on
            except Exception as error:
                raise_if_signal(error)
                self._lost_facts += 1
                return False

    def _open_again(self) -> None:
        """The file of facts was removed under us: a stream of another name says again what still
        holds.
        """
        if self._facts is not None:
            self._facts.close()
            self._facts = None
        if self._tags:
            self._unsaid.append({"type": "tags", "time_ns": time.time_ns(), "tags": self._tags})
        if self._config_data is not None:
            self._unsaid.append(
                {"type": "config", "time_ns": time.time_ns(), "config": self._config_data}
            )

    def note(self, key: str, text: str, level: str = "warning") -> None:
        """Tell something once: on stderr and as a fact; a `hint` as a fact alone. `key` says what
        counts as the same thing. Never raises.
        """
        if self.is_off or key in self._noted or (len(self._noted) >= NOTES_MAX and " " in key):
            return  # keys without a blank are a handful, and matter
        self._noted.add(key)
        try:
            text = clean_text(self.masker()(text))
            if level != "hint":
                self._warn(f"headway: {text}")
            self.fact("note", level=level, text=text)
        except Exception as error:  # P1: a warning that fails must not become the trouble
            raise_if_signal(error)
            return

    # -- what a person says

    def init(self, config: "Any", tags: "Any", name: str | None, experiment: str | None) -> None:
        if self.is_off:
            return
        new_tags = self._clean_tags(tags)
        with self.lock:
            if self._is_finished or (self.has_started and self._is_notebook()):
                self._next_run()
            self.resting = False
            if self.number and self.place is None and from_environment(self.environ) is not None:
                self._makes_job = True
                attachment = self._attachment()
                attachment.outer_uuid = self.environ.get("HEADWAY_UUID", "")
                attachment.parent = self.environ.get("HEADWAY_JOB") or None
            notes: list[tuple[str, str]] = []  # told once the job has its name: telling starts it
            if self.place is None and (self._makes_job or from_environment(self.environ) is None):
                self._describe(name, experiment, new_tags, notes)
            elif name is not None and self.place is not None and self.place.attached:
                self.note("name", f"this run has its name already; {name!r} is not used", "info")
            self._try_start()
            for key, text in notes:
                self.note(key, text)
            if new_tags:
                self._tags = list(dict.fromkeys([*self._tags, *new_tags]))[:TAGS_MAX]
                self.fact("tags", tags=self._tags)
            if config is not None:
                self.config.update(config)

    def _is_notebook(self) -> bool:
        from headway.client.attach import is_notebook

        return is_notebook() and self.place is not None and self.place.attached

    def _next_run(self) -> None:
        """Another run begins in this process: a job of its own, with its own config and steps."""
        self._is_finished = False
        outer = self.place
        if outer is None:
            return
        if outer.attached:
            self.end_run(0)
        else:
            if not _is_here(outer.task_dir, self.environ):
                self.note(
                    "second run",
                    "a second run in one process needs a job of its own, which only local jobs can"
                    " make; what follows is added to the first one",
                )
                return
            self.finish()
            self._is_finished = False
            self._close()
            self._restart()

    def end_run(self, exit_code: int) -> None:
        """This run is over, and the process goes on. Never raises."""
        if self.is_off or self.place is None or not self.place.attached:
            return
        with self.lock:
            self.finish()
            self.fact("bye", exit_code=exit_code, over=True, pid=os.getpid(), start=process_start())
            self.tell_id()
            self._close()
            self._restart()

    def _restart(self) -> None:
        """Forget all that belongs to one run."""
        if self.attachment is not None:
            self.attachment.reap()
            self.attachment.leave()
        self.attachment = self.place = self.exit_code = self._secret_names = None
        self._is_finished = self._makes_job = self._has_told_id = False
        self.resting = True
        self.number += 1
        self._tags = []
        self.config.forget()
        self.metrics.restart()

    def job_id(self, wait_s: float = 0.0) -> str | None:
        """The job's id. A plain script's is given by the server, a moment after its start."""
        if self.place is None or not self.place.attached:
            return self.environ.get("HEADWAY_JOB") or None
        from headway.client.attach import job_id

        until_s = time.monotonic() + wait_s
        while True:
            found = job_id(self.place.task_dir)
            if found is not None or time.monotonic() >= until_s:
                return found
            time.sleep(0.02)

    def tell_id(self, wait_s: float = 0.0) -> None:
        """One line on the terminal of a plain script, or in the cell of a notebook. Never raises."""
        place = self.place
        if self._has_told_id or place is None or not place.attached or place.rank != 0:
            return
        try:
            if self.environ.get("HEADWAY_QUIET", "") not in ("", "0") or not _is_watched():
                self._has_told_id = True
                return
            found = self.job_id(wait_s)
            if found is not None:
                self._has_told_id = True
                suffix = found.rpartition("-")[2]
                self._warn(f"headway: {found} · hw q {suffix} · hw watch {suffix}")
            elif wait_s:
                self._warn("headway: this run is kept; to see it: hw q last")
        except Exception as error:  # P1: a word to the person must not become trouble
            raise_if_signal(error)

    def _describe(
        self,
        name: str | None,
        experiment: str | None,
        tags: list[str],
        notes: list[tuple[str, str]],
    ) -> None:
        attachment = self._attachment()
        attachment.name = _clean_word("name", name, notes) or attachment.name
        attachment.experiment = (
            _clean_word("experiment", experiment, notes) or attachment.experiment
        )
        attachment.tags = tags or attachment.tags

    def _clean_tags(self, tags: "Iterable[object] | str | None") -> list[str]:
        words = [tags] if isinstance(tags, str) else list(tags or [])[:TAGS_MAX]
        mask = self.masker()
        cleaned = [clean_text(mask(str(word)))[:TAG_CHARS_MAX] for word in words]
        return [tag for word in cleaned if (tag := "".join(ch for ch in word if ch.isprintable()))]

    def _try_start(self) -> None:
        try:
            self.start()
        except OSError:
            return  # told by start(); what follows waits or is counted

    def config_changed(self) -> None:
        """Write the whole config down, at once for the first changes, later at most once a second.
        Never raises.
        """
        self._config_is_new = True
        self._configs += 1
        if self._configs <= CONFIG_WRITES_MAX or time.monotonic() >= self._config_next_s:
            self.tell_config()

    def note_arguments(self, values: "JsonObject", rest: "list[str]") -> None:
        """What the program has parsed and the words that it left over, until it tells a config of
        its own. Parsed in two rounds, both count.
        """
        if self.is_off or self.config:
            return
        from headway.client.config_plain import plain
        from headway.wire.redact import mask_argv, mask_data

        self._arguments.update(values)
        data, _ = plain(self._arguments, self.masker())
        data = mask_data(data, self.secrets(), self.secret_names())
        self.fact("config", config=data, rest=mask_argv(rest, self.secrets()))

    def tell_config(self) -> None:
        if self.is_off or (not self.config and self._config_data is None):
            return
        try:
            from headway.client.config_plain import plain
            from headway.wire.redact import mask_data

            values = self.secrets()
            data, whole = plain(dict(self.config), self.masker())
            data = mask_data(data, values, self.secret_names())
            self._config_is_new = False
            if data != self._config_data:
                self._config_data = data
                self._config_next_s = time.monotonic() + max(
                    1.0, len(str(data)) / CONFIG_BYTES_PER_S
                )
                self.fact("config", config=data)
            if not whole:
                self.note("config cut", "the config is too large or too deep; a part of it is kept")
        # P1: a config of somebody else's making; plain() should have dealt with it
        except Exception as error:
            raise_if_signal(error)
            self.note("config", f"the config could not be kept: {type(error).__name__}")

    def exception(
        self,
        where: str,
        error: BaseException,
        tb: "TracebackType | None" = None,
        thread: str | None = None,
    ) -> None:
        """An exception that nobody caught. Each is told once, whoever reports it. Never raises."""
        if self.is_off or _is_told(error):
            return
        if where == "main":
            if is_interactive():  # at a prompt an exception ends nothing
                self.exit_code = None
            else:
                self.exit_code = INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
                self._tell_elastic(error)
        elif self._exceptions >= EXCEPTIONS_MAX:
            return
        if self.environ.get("HEADWAY_FORWARD_EXCEPTIONS", "1") == "0":
            return
        self._exceptions += 1
        try:
            from headway.client.exception import describe

            fields = describe(
                where, error, tb if tb is not None else error.__traceback__, thread, self.masker()
            )
            self.fact("exception", **fields)
        except Exception:  # P1: the program is failing already; it must fail in its own way
            self.fact(
                "exception", where=where, exc_type=type(error).__name__, message="", traceback=""
            )

    def _tell_elastic(self, error: BaseException) -> None:
        """torchrun shows the exception in its summary, where the script does not use `@record`."""
        if "TORCHELASTIC_ERROR_FILE" not in self.environ:
            return
        try:
            from headway.client.elastic_error import write_error_file

            write_error_file(self.environ, error)
        except Exception:  # P1: the program is failing already; it must fail in its own way
            return

    # -- from time to time, and at the end

    def look(self) -> None:
        """Called about once a second while training logs."""
        if self._unsaid:
            self.say()
        if self._config_is_new and time.monotonic() >= self._config_next_s:
            self.tell_config()
        if self.attachment is not None:
            self.attachment.reap()
            self.tell_id()

    def flush(self, durable: bool) -> None:
        """Everything is in the file already when a call returns; `durable` also waits for the disk.
        Raises OSError.
        """
        if self._unsaid:
            self.say()
        self.metrics.flush(durable)
        if durable and self._facts is not None:
            self._facts.sync()

    def finish(self) -> None:
        """Say how it went so far, and close the metrics. How the process ends is not known yet.
        Never raises.
        """
        if self.is_off:
            return
        with self.lock:
            if not self.has_started and not self._unsaid:
                return
            self._is_finished = True
            self.tell_config()
            self.metrics.tell_gap()
            for part in self.parts:
                part.tell()
            self.metrics.tell_counters()
            self.metrics.pause()
            if self.attachment is not None:
                self.attachment.reap()

    def end(self, exit_code: int | None) -> None:
        """Say how it ended, and close. A later call starts streams of its own. Never raises."""
        if self.is_off:
            return
        with self.lock:
            if not self.has_started and not self._unsaid:
                return
            self.finish()
            self.tell_id(_ID_WAIT_S)
            self.fact("bye", exit_code=exit_code)
            if self._unsaid:
                self.say()  # once more: there is no later
            self._close()

    def _close(self) -> None:
        self.metrics.close()
        for part in self.parts:
            part.close()
        facts = self._facts
        self._begin()
        if facts is not None:
            facts.close()

    def after_fork(self) -> None:
        """In a forked child: the streams are the parent's, and so may be a lock that nobody will
        ever release.
        """
        self.lock = _fork_gate  # no fork while it is held
        self.opener = 0
        self.exit_code = None
        if self.attachment is not None:
            self.attachment.child = None
        self._close()


def _clean_word(what: str, word: str | None, notes: list[tuple[str, str]]) -> str | None:
    """A job's or experiment's name as the server takes it."""
    if not word:
        return None
    from headway.model.errors import UsageError
    from headway.model.ids import check_name, name_from_command

    try:
        return check_name(str(word))
    except UsageError as error:
        plain = name_from_command([str(word)])
        notes.append((what, f"{error.message}: {error.hint}; it is called {plain!r} now"))
        return plain


class _Opening:
    """`Run.opening`; by hand, because `contextlib` would be imported for it alone."""

    def __init__(self, run: Run) -> None:
        self._run, self._outer = run, 0

    def __enter__(self) -> None:
        self._outer, self._run.opener = self._run.opener, get_ident()

    def __exit__(self, *_: object) -> None:
        self._run.opener = self._outer
        if not self._outer:
            self._run.metrics.log_early()


def _encode(fact: "JsonObject") -> bytes:
    frame = encode_json(FACT, fact)
    if len(frame) > FRAME_BYTES_MAX and "traceback" in fact:
        short = {key: fact[key][-TRACEBACK_SHORT_CHARS:] for key in ("traceback", "message")}
        frame = encode_json(FACT, fact | short)
    if len(frame) > FRAME_BYTES_MAX:
        raise ValueError("a fact is larger than a frame")
    return frame


def _secret_names(task_dir: str) -> list[str]:
    try:
        fd = os.open(
            os.path.join(task_dir, "task.json"), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        )
        with os.fdopen(fd, "rb") as file:
            data = file.read()
        if b'"secret_names"' not in data or b'"secret_names":[]' in data:  # as the engines write it
            return []  # nearly always; `json` would be imported for it alone
        import json

        return [str(name) for name in json.loads(data).get("secret_names", [])]
    except (OSError, ValueError, AttributeError, TypeError):
        return []  # the patterns of wire/redact.py still hold


def _is_told(error: BaseException) -> bool:
    """Marks the exception: two hooks may report the same one. A reference to it would keep its
    frames alive.
    """
    try:
        if getattr(error, "_headway_told", False):
            return True
        error._headway_told = True  # type: ignore[attr-defined]
    except Exception:  # a type with slots, or with its own __setattr__: better twice than never
        return False
    return False


def _is_here(task_dir: str, environ: "MutableMapping[str, str]") -> bool:
    """Whether the task's spool is in the home of this machine, where further jobs can be made."""
    home = environ.get("HEADWAY_HOME", "")
    return bool(home) and os.path.dirname(task_dir) == os.path.join(home, "spool")


def _is_watched() -> bool:
    """Whether a person sees what we say: a terminal, or the cell of a notebook."""
    from headway.client.attach import is_notebook

    return is_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def is_interactive() -> bool:
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _to_stderr(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
