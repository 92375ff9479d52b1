"""Every setting: its name, type, default, meaning, and who reads it when. Makes
`docs/reference/settings.md`.

Called by `layers.py`, which asks each `Setting` to check the values that files, environment and
command line give.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from headway.model import limits
from headway.model.errors import UsageError
from headway.model.ids import check_name
from headway.settings import (
    clusters,
    data_folders,
    job_defaults,
    notify_settings,
    quantity,
    storage_accounts,
)
from headway.settings.nearest import did_you_mean

# Who reads a setting, and when a change of it takes effect.
SCOPES: Final = {
    "command": "read by each `hw` command",
    "job": "read when a job is submitted, and fixed for that job",
    "server": "read when the server starts; after a change: `hw server stop`, the next command starts it again",
}

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_LEVEL_MAX: Final = 1000
_PATH_CHARS_MAX: Final = 4096

Check = Callable[[Any, str], Any]


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table. `check(value, field)` returns the value in its own type or raises a
    UsageError.
    """

    name: str
    type: str  # in words, for people
    default: Any  # a value, or a function without arguments where it depends on the machine
    doc: str
    scope: str
    check: Check
    nullable: bool = False
    shown: Callable[[Any], Any] | None = None  # what people see of a value that may hold a secret

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return "HEADWAY_" + self.name.upper().replace(".", "_")

    def default_value(self) -> object:
        return self.default() if callable(self.default) else self.default

    def parse(self, value: object, field: str) -> Any:
        """`value` as a file, a variable or an option gave it; an error names `field`."""
        if value is None or (self.nullable and value in ("", "null")):
            if self.nullable:
                return None
            raise UsageError(f"{field}: has no value", f"{self.name} is {self.type}")
        return self.check(value, field)


def cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not Linux, or a sandbox that forbids it
        return os.cpu_count() or 1


def _count(least: int, most: int) -> Check:
    return lambda value, field: quantity.count(_scalar(value, field), field, least=least, most=most)


def _duration(value: object, field: str) -> float:
    return quantity.duration_s(_scalar(value, field), field, allow_zero=True)


def _tick(value: object, field: str) -> float:
    found = _duration(value, field)
    if not 0.1 <= found <= 60:
        raise UsageError(f"{field}: {found:g} s is not a pace to draw at", "100ms to 60s")
    return found


def _size(value: object, field: str) -> int:
    return quantity.size_bytes(_scalar(value, field), field, least_bytes=4096)


def _name(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise UsageError(
            f"{field}: {value!r:.60} is not a name", "write it in quotes if it is meant as one"
        )
    try:
        return check_name(value)
    except UsageError as error:
        raise UsageError(f"{field}: {error.message}", error.hint) from None


def _path(value: object, field: str) -> str:
    if not isinstance(value, str) or not os.path.isabs(os.path.expanduser(value)):
        raise UsageError(
            f"{field}: {value!r:.120} is not an absolute path", "for example: /var/lib/headway"
        )
    return os.path.expanduser(value)


def _choice(*choices: str) -> Check:
    def check(value: object, field: str) -> str:
        if value in choices:
            return str(value)
        raise UsageError(
            f"{field}: {value!r:.60} is not one of {', '.join(choices)}{did_you_mean(str(value), choices)}",
        )

    return check


def _names(value: object, field: str) -> list[str]:
    """A list of names of environment variables; on one line, separated by commas."""
    items = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(items, list):
        raise UsageError(
            f"{field}: {value!r:.60} is not a list of names", "for example: [MY_KEY, OTHER_KEY]"
        )
    names = [item for item in items if item != ""]
    for item in names:
        if not isinstance(item, str) or "=" in item or "\0" in item or len(item) > 256:
            raise UsageError(f"{field}: {item!r:.60} is not the name of an environment variable")
    if len(names) > limits.TAGS_MAX:
        raise UsageError(f"{field}: {len(names)} names are too many: at most {limits.TAGS_MAX}")
    return names


def _flag(value: object, field: str) -> bool:
    if isinstance(value, bool):
        return value
    known = {
        "true": True,
        "yes": True,
        "on": True,
        "1": True,
        "false": False,
        "no": False,
        "off": False,
        "0": False,
    }
    if isinstance(value, str) and value.lower() in known:
        return known[value.lower()]
    raise UsageError(f"{field}: {value!r:.60} is neither true nor false")


def _patterns(value: object, field: str) -> list[str]:
    """A list of patterns or paths; on one line, separated by commas."""
    items = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(
        isinstance(item, str) and "\0" not in item for item in items
    ):
        raise UsageError(
            f"{field}: {value!r:.60} is not a list of patterns",
            "for example: [data/small/, '*.onnx']",
        )
    if len(items) > limits.CODE_PATTERNS_MAX:
        raise UsageError(f"{field}: {len(items)} are too many: at most {limits.CODE_PATTERNS_MAX}")
    return [item for item in items if item]


def _web_address(value: Any, field: str) -> str:
    good = isinstance(value, str) and value.startswith(("http://", "https://"))
    if not good or any(char.isspace() or not char.isprintable() for char in value):
        raise UsageError(f"{field} is {value!r}", "an address such as http://127.0.0.1:8086")
    return str(value)


def _token(value: object, field: str) -> str:
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise UsageError(f"{field} is not a token", "the text that InfluxDB gave")
    return value


def _folder(value: object, field: str) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > _PATH_CHARS_MAX:
        raise UsageError(f"{field}: {value!r:.60} is not a folder", "for example: runs/usage")
    return value


def _level(value: object, field: str) -> str:
    """As `logging` names it. A number stays one, as text: it is given to programs in a variable."""
    text = str(value).strip().upper()
    if (text not in LEVELS and not (text.isdigit() and int(text) <= _LEVEL_MAX)) or isinstance(
        value, bool
    ):
        names = ", ".join(LEVELS)
        raise UsageError(
            f"{field}: {value!r:.60} is not one of {names}, nor a number up to {_LEVEL_MAX}{did_you_mean(text, LEVELS)}"
        )
    return text


def _address(value: object, field: str) -> str:
    from headway.home import remote_server  # here: it imports ssl, and mostly there is no monitor

    if not isinstance(value, str):
        raise UsageError(
            f"{field}: {value!r:.60} is not an address", "HOST:PORT, or the path of a unix socket"
        )
    return str(remote_server.parse(value, field))


def _agent_address(value: object, field: str) -> str:
    if value in ("auto", "off"):
        return str(value)
    if value is False:
        return "off"  # as YAML reads the word
    from headway.home import remote_server  # here: it imports ssl

    if not isinstance(value, str):
        raise UsageError(
            f"{field}: {value!r:.60} is not an address", "auto, off, :PORT or HOST:PORT"
        )
    return str(remote_server.parse(value, field, listening=True))


def _clusters(value: object, field: str) -> dict[str, clusters.Definition]:
    if isinstance(value, str):
        import json

        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise UsageError(
                f"{field}: this is not JSON", 'for example: {"box": {"engine": "docker"}}'
            ) from None
    return clusters.parse(value, field)


def _scalar(value: object, field: str) -> quantity.Given:
    if isinstance(value, str | int | float):
        return value
    raise UsageError(
        f"{field}: a {'list' if isinstance(value, list) else 'mapping'} stands where one value should"
    )


_TABLE: Final = (
    Setting(
        "default_cluster", "a name", "here", "Where jobs run when `-c` does not say.", "job", _name
    ),
    Setting(
        "clusters",
        "a mapping",
        {},
        "Named clusters, each with its engine and options. Files add to each other by name.",
        "job",
        _clusters,
    ),
    Setting(
        "experiment",
        "a name, or null",
        None,
        "Experiment of a job when `-e` does not say.",
        "job",
        _name,
        nullable=True,
    ),
    Setting(
        "max_running",
        "a whole number",
        cores,
        "Jobs that may run at the same time on this machine; further ones wait. Default: the number of cores.",
        "server",
        _count(1, 10_000),
    ),
    Setting(
        "gpus",
        "a whole number, or null",
        None,
        "GPUs of this machine. Null asks the driver (NVML).",
        "server",
        _count(0, 1_024),
        nullable=True,
    ),
    Setting(
        "port",
        "a whole number",
        0,
        "Port of the loopback address for browsers; 0 takes any free one, and the same again "
        "after a restart.",
        "server",
        _count(0, 65_535),
    ),
    Setting(
        "agent_address",
        "auto, off, :PORT or HOST:PORT",
        "auto",
        "Where agents on other machines (nodes of a Slurm cluster) reach this server, with TLS and their task's token. "
        "`auto`: any free port, opened when the first such job starts; `off`: nowhere, they use the cluster's folder.",
        "server",
        _agent_address,
    ),
    Setting(
        "idle_exit_s",
        "a duration",
        0.0,
        "The server ends itself after this long without work and without viewers; "
        "0 never. The next command starts it again.",
        "server",
        _duration,
    ),
    Setting(
        "grace_s",
        "a duration",
        limits.GRACE_S,
        "Time between the request to stop (SIGTERM) and the end (SIGKILL).",
        "job",
        _duration,
    ),
    Setting(
        "hold_max_s",
        "a duration",
        limits.HOLD_S_MAX,
        "The longest time that `--hold` may keep a failed task; 0 allows no hold.",
        "server",
        _duration,
    ),
    Setting(
        "monitoring_interval_s",
        "a duration",
        limits.MONITORING_INTERVAL_S,
        "Time between two samples of CPU, memory, disk and GPU usage of a job; 0 takes none.",
        "job",
        _duration,
    ),
    Setting(
        "tensorboard_dir",
        "a folder, or null",
        None,
        "Usage is also written there as TensorBoard scalars, in a folder named after the job.",
        "job",
        _folder,
        nullable=True,
    ),
    Setting(
        "log_level",
        "a level of `logging`, by name or number",
        "INFO",
        "Records of `logging` from this level on are kept, where the program has set no level itself.",
        "job",
        _level,
    ),
    Setting(
        "forward_exceptions",
        "true or false",
        True,
        "Uncaught exceptions, and where fatal signals happened, are recorded. What the program prints stays as it is.",
        "job",
        _flag,
    ),
    Setting(
        "spool_bytes_max",
        "a size",
        limits.SPOOL_BYTES_MAX,
        "What one task may keep on its node before the server has it. "
        "Beyond it the oldest output is dropped, and counted.",
        "job",
        _size,
    ),
    Setting(
        "log_bytes_max",
        "a size",
        limits.LOG_BYTES_MAX,
        "What is stored of one output stream; beyond it head and tail, with a gap that is shown.",
        "server",
        _size,
    ),
    Setting(
        "database_folder",
        "an absolute path, or null",
        None,
        "Where a new home keeps its database. Null: in the home; if that is on a network file system, on a local disk.",
        "server",
        _path,
        nullable=True,
    ),
    Setting(
        "retention_days",
        "a whole number",
        limits.RETENTION_DAYS,
        "`hw gc` deletes ended jobs that are older; 0 keeps everything.",
        "server",
        _count(0, 36_500),
    ),
    Setting(
        "monitor",
        "an address, or null",
        None,
        "Server on another machine that shows this machine's jobs too: HOST:PORT, joined by `hw monitor join`; "
        "or the path of a unix socket.",
        "job",
        _address,
        nullable=True,
    ),
    Setting(
        "secret_names",
        "a list of names",
        [],
        "Further environment variables whose values are masked wherever they appear.",
        "job",
        _names,
    ),
    Setting(
        "record_env",
        "a list of names",
        [],
        "Further environment variables whose values are recorded with a job.",
        "job",
        _names,
    ),
    Setting(
        "hang.after_s",
        "a duration",
        limits.HANG_AFTER_S,
        "A running job that is silent for less than this, or than ten times its usual interval, is not hung; 0 never.",
        "server",
        _duration,
    ),
    Setting(
        "slow.look_s",
        "a duration",
        limits.SLOW_LOOK_S,
        "Time between two looks at whether jobs that run are slow, and why; 0 looks only when `hw why` asks.",
        "server",
        _duration,
    ),
    Setting(
        "notify.on",
        "a list of ended, failed, hung, slow, stalled, started",
        list(notify_settings.KINDS),
        "What is told: the end of a job; its failure; a hang; that it is slow; a silence; its start after it has waited.",
        "server",
        notify_settings.kinds,
    ),
    Setting(
        "notify.command",
        "a command, or null",
        None,
        "Run for each notification; the facts are in its environment (`HW_…`) and on its stdin, as JSON. No shell.",
        "server",
        notify_settings.command,
        nullable=True,
    ),
    Setting(
        "notify.webhook_url",
        "an address, or null",
        None,
        "Each notification is posted there as JSON. Taken for a secret: it belongs into the private file.",
        "server",
        notify_settings.webhook_url,
        nullable=True,
        shown=notify_settings.shown_url,
    ),
    Setting(
        "influx_url",
        "an address, or null",
        None,
        "Points of all jobs are also sent there as line protocol: InfluxDB 1.x or 2.x, or VictoriaMetrics.",
        "server",
        _web_address,
        nullable=True,
    ),
    Setting(
        "influx_database",
        "a name",
        "headway",
        "The database, or with InfluxDB 2.x the bucket, that they go to.",
        "server",
        _name,
    ),
    Setting(
        "influx_token",
        "a text, or null",
        None,
        "InfluxDB's token. A secret: it belongs into the private file.",
        "server",
        _token,
        nullable=True,
        shown=lambda value: "***" if value else value,
    ),
    Setting(
        "notify.webhook_hosts",
        "a list of hosts",
        list(notify_settings.LOOPBACK),
        "Hosts, or hosts and ports (`example.org:8443`), that `notify.webhook_url` may name.",
        "server",
        notify_settings.hosts,
    ),
    Setting(
        "notify.desktop",
        "true or false",
        False,
        "Show notifications on this machine's desktop (`notify-send`).",
        "server",
        _flag,
    ),
    Setting(
        "notify.stall_s",
        "a duration",
        limits.NOTIFY_STALL_S,
        "A running job that prints, logs and counts nothing for this long has stalled; 0 never.",
        "server",
        _duration,
    ),
    Setting(
        "notify.waited_s",
        "a duration",
        limits.NOTIFY_WAITED_S,
        "The start of a job is told only when it has waited this long.",
        "server",
        _duration,
    ),
    Setting(
        "console.frame_s",
        "a duration",
        limits.CONSOLE_FRAME_S,
        "At least this long between two frames of a live view: its highest refresh rate.",
        "command",
        _duration,
    ),
    Setting(
        "console.tick_s",
        "a duration",
        1.0,
        "A live view is drawn anew after this time also where nothing has come: clocks go on.",
        "command",
        _tick,
    ),
    Setting(
        "socket",
        "an absolute path, or null",
        None,
        "A name of your own for the server's unix socket: a link to it, for `hw --monitor PATH`.",
        "server",
        _path,
        nullable=True,
    ),
    Setting(
        "defaults",
        "a mapping of keys of a job file",
        {},
        "What every job has that does not say otherwise: env, retry, hold, image, time, memory and others.",
        "job",
        job_defaults.defaults,
    ),
    Setting(
        "code.pin",
        "true or false",
        False,
        "Jobs run from a snapshot of the code as it is when they are submitted, as with `--snapshot`; "
        "in a file also `code: pin`.",
        "job",
        _flag,
    ),
    Setting(
        "secrets_file",
        "an absolute path, or null",
        None,
        "A file of lines NAME=VALUE, for its owner alone: variables of jobs whose values are masked.",
        "job",
        _path,
        nullable=True,
    ),
    Setting(
        "code.include",
        "a list of patterns",
        [],
        "Files that a snapshot of the code takes although something ignores them; patterns as in `.gitignore`.",
        "command",
        _patterns,
    ),
    Setting(
        "code.exclude",
        "a list of patterns",
        [],
        "Files that a snapshot leaves out; stronger than `code.include`.",
        "command",
        _patterns,
    ),
    Setting(
        "code.allow",
        "a list of paths",
        [],
        "Files that a snapshot takes although they look like secrets, are too large, or are links that leave the tree.",
        "command",
        _patterns,
    ),
    Setting(
        "accounts",
        "a mapping of names to accounts",
        {},
        "Accounts of `hw storage` and of `folders`: kind, endpoint, and the names of the variables that hold keys.",
        "command",
        storage_accounts.accounts,
    ),
    Setting(
        "folders",
        "a mapping of names to folders",
        {},
        "Data that every job gets, as `folders` of a job file; the job's own of the same name stand above.",
        "command",
        data_folders.folders,
    ),
    Setting(
        "send_interval_s",
        "a duration",
        30.0,
        "How often the folders of a running job are looked at for files to send.",
        "server",
        _duration,
    ),
    Setting(
        "color",
        "auto, always or never",
        "auto",
        "Colour in the terminal. `NO_COLOR` is honoured by `auto`.",
        "command",
        _choice("auto", "always", "never"),
    ),
)

SETTINGS: Final[dict[str, Setting]] = {setting.name: setting for setting in _TABLE}
