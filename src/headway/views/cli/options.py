"""Every option of `hw`, and where options may stand. Called by `dispatch`, `help` and `completion`.

    hw [options] VERB [options] [--] word…

An option means the same for every verb that has it, so it may stand before the verb. For `run` and
`submit` everything from the first word that is not an option, or after `--`, is the command,
untouched. For the other verbs options may stand between the words.

This is read by ourselves and not by a library: the rule above is ours, and the usual library takes
70 ms to import, five times what `hw --version` takes in all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from headway.model.errors import UsageError
from headway.model.json_types import JsonObject
from headway.model.value import Value
from headway.settings import job_fields

Read = Callable[[str, str], Any]  # (text, name of the option) -> value, or UsageError


class Option(Value):
    names: tuple[str, ...]
    key: str
    value: str  # what stands for its value in help; "" for a flag
    help: str
    read: Read | None = None
    many: bool = False


class Command(Value):
    """A verb: what it accepts and what help says about it. The work is in the file of the same
    name.
    """

    name: str
    group: str
    summary: str
    usage: str
    options: tuple[str, ...] = ()
    takes_command: bool = False  # everything from the first word on is a command line to run
    alias: str = ""
    details: str = ""
    examples: tuple[tuple[str, str], ...] = ()
    words: tuple[str, ...] = ()  # words that may follow, for completion
    # what an option means for this verb, where that differs
    says: Mapping[str, str] = MappingProxyType({})

    def meaning(self, key: str) -> str:
        """What the option does here, in words."""
        return self.says.get(key) or BY_KEY[key].help


class Parsed:
    def __init__(self) -> None:
        self.command: Command | None = None
        self.values: JsonObject = {}
        self.words: list[str] = []
        # what stood behind `--`, for verbs that do not take a command
        self.after: list[str] | None = None


def _count(text: str, name: str) -> int:
    from headway.settings.quantity import count

    return count(text, name)


def _count_or_zero(text: str, name: str) -> int:
    from headway.settings.quantity import count

    return count(text, name, least=0)


def _tracker(text: str, name: str) -> str:
    if text not in ("wandb", "mlflow", "tensorboard", "csv"):
        raise UsageError(f"{name} {text}: not known", "valid: wandb, mlflow, tensorboard, csv")
    return text


def _answered(text: str, name: str) -> str:
    from headway.settings.value_kinds import ANSWERED

    if text not in ANSWERED:
        raise UsageError(
            f"{name} {text}: Headway does not answer for that", f"valid: {', '.join(ANSWERED)}"
        )
    return text


def _duration(text: str, name: str) -> float:
    from headway.settings.quantity import duration_s

    return duration_s(text, name)


def _duration_or_zero(text: str, name: str) -> float:
    from headway.settings.quantity import duration_s

    return duration_s(text, name, allow_zero=True)


def _size(text: str, name: str) -> int:
    from headway.settings.quantity import size_bytes

    return size_bytes(text, name)


def _variable(text: str, name: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UsageError(f'{name}: "{text[:60]}" is not NAME=VALUE', f"for example: {name} SEED=1")
    return key, value


def _name(text: str, name: str) -> str:
    from headway.model.ids import check_name

    try:
        return check_name(text)
    except UsageError as error:
        raise UsageError(f"{name}: {error.message}", error.hint) from None


def _pattern(text: str, name: str) -> str:
    import re

    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(
            f'{name}: "{text[:60]}" is not a regular expression: {error}',
            "to find a character such as ( [ * + ? as it stands, put a backslash before it",
        ) from None
    return text


def _weight(text: str, name: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = -1.0
    if not 0 <= weight <= 0.999:
        raise UsageError(f'{name}: "{text[:60]}" is not a weight', "0 (none) to 0.999 (most)")
    return weight


def _tensorboard(text: str, name: str) -> bool | str:
    """Without a value, or with a truth, as others wrote it; a folder is what it meant before
    `--tensorboard-dir` was there.
    """
    if text.lower() in ("", "true", "1", "yes"):
        return True
    return False if text.lower() in ("false", "0", "no") else text


def _their_states(text: str, name: str) -> list[str]:
    from headway.views.cli.tensorboard import states_of

    return states_of(text, name)


def _ids(text: str, name: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _tolerance(text: str, name: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e9:
        raise UsageError(f'{name}: "{text[:60]}" is not a tolerance', "a number, such as 0.01 or 0")
    return found


def _condition(text: str, name: str) -> str:
    from headway.wire.filter_language import parse

    try:
        parse(text)
    except UsageError as error:
        raise UsageError(f"{name}: {error.message}", error.hint) from None
    return text


def _one_of(*choices: str) -> Read:
    def read(text: str, name: str) -> str:
        if text in choices:
            return text
        from headway.settings.nearest import did_you_mean

        raise UsageError(
            f'{name}: "{text[:60]}" is not one of {", ".join(choices)}{did_you_mean(text, choices)}',
        )

    return read


STREAMS: Final = ("stdout", "stderr", "agent", "log")
STATES: Final = (
    "waiting",
    "running",
    "stopping",
    "succeeded",
    "failed",
    "stopped",
    "held",
    "unknown",
)


def _names(text: str, name: str) -> list[str]:
    found = [word.strip() for word in text.split(",") if word.strip()]
    if not found:
        raise UsageError(f"{name}: names no column", f"for example: {name} id,state,loss,lr")
    return found


def _states(text: str, name: str) -> list[str]:
    read = _one_of(*STATES)
    return [read(word.strip(), name) for word in text.split(",")]


def _exit_code(text: str, name: str) -> int:
    from headway.settings.quantity import count

    return count(text, name, least=-128, most=255)


def _signal(text: str, name: str) -> int:
    from headway.views.cli.why_logs import signal_number

    return signal_number(text, name)


_ROLE: Final = _one_of("ingest", "read", "operate", "admin")


def _of_fields() -> Iterator[Option]:
    """Options that are fields of a job."""
    for key, field in job_fields.options():
        read = partial(job_fields.read, field.rule) if field.value else None
        yield Option(field.option, key, field.value, field.help, read, field.many)


OPTIONS: Final = (
    *_of_fields(),
    Option(
        ("--env",),
        "env",
        "NAME=VALUE",
        "a variable for the job; may be repeated",
        _variable,
        many=True,
    ),
    Option(
        ("--tensorboard-dir",),
        "tensorboard_dir",
        "DIR",
        "write usage also as TensorBoard scalars, into DIR/<id>",
    ),
    Option(
        ("--tensorboard",), "tensorboard", "", "start TensorBoard over the new job", _tensorboard
    ),
    Option(
        ("--autolog",),
        "autolog",
        "",
        "log what transformers, accelerate, Lightning and Keras train, without an edit",
    ),
    Option(
        ("--telegraf",),
        "telegraf",
        "",
        "read line protocol from udp://127.0.0.1:8092, Telegraf's port, as metrics of this job",
    ),
    Option(
        ("--as",),
        "answer_as",
        "NAME",
        "answer wandb or mlflow in the script with Headway, without an edit; may be repeated",
        _answered,
        many=True,
    ),
    Option(
        ("--after",),
        "after",
        "ID",
        "start when that job has succeeded; may be repeated",
        None,
        many=True,
    ),
    Option(
        ("--set",),
        "sets",
        "NAME=VALUE",
        "a parameter of the job file; may be repeated",
        _variable,
        many=True,
    ),
    Option(("--smoke",), "smoke", "", "a small trial run: what the job file says under `smoke`"),
    Option(
        ("--snapshot",),
        "snapshot",
        "",
        "run from a snapshot of the code as it is now, not in its folder",
    ),
    Option(
        ("--account",),
        "account",
        "NAME",
        "the account of the settings; default: the only one of its kind",
        _name,
    ),
    Option(
        ("--expires",), "expires_s", "TIME", "how long the address works; default 1h", _duration
    ),
    Option(("--force",), "force", "", "write over files that are there"),
    Option(("--array",), "array", "N|ID", "so many jobs as one, by numbers: 100, 0-9, 1,4,7"),
    Option(("--remove",), "remove", "", "take it away"),
    Option(("--failed",), "failed", "", "of an array, only the jobs that failed"),
    Option(
        ("--plain",), "plain", "", "the program's lines and nothing else: no live view, no verdict"
    ),
    Option(("--wait",), "wait", "", "follow the job and exit with its exit code"),
    Option(
        ("--state",),
        "state",
        "STATE",
        "jobs in this state; several with commas",
        _states,
        many=True,
    ),
    Option(
        ("--since",),
        "since_s",
        "TIME",
        "jobs submitted within this time, such as 2h or 7d",
        _duration,
    ),
    Option(
        ("--older-than",),
        "older_than_s",
        "TIME",
        "jobs submitted before this time, such as 30d",
        _duration,
    ),
    Option(("--match",), "match", "REGEX", "jobs whose id, name or command matches", _pattern),
    Option(
        ("--where",),
        "where",
        "CONDITION",
        "jobs that it holds for, such as 'lr<0.1 and val/acc>0.9'",
        _condition,
    ),
    Option(
        ("--sort",),
        "sort",
        "KEY",
        "order by this metric (best first), config key or field; -KEY turns it round",
    ),
    Option(
        ("--group",),
        "group",
        "KEYS",
        "one row for each value of these config keys; !seed: of all that differ but seed",
    ),
    Option(("--final",), "final", "", "last values instead of the best ones"),
    Option(("--min",), "min", "", "the least is best, whatever the metric's name says"),
    Option(("--max",), "max", "", "the most is best, whatever the metric's name says"),
    Option(("--importance",), "importance", "", "which config keys mattered for the metric of -m"),
    Option(("--code",), "code", "", "the code as a unified diff, with uncommitted changes"),
    Option(("--tool",), "tool", "PROGRAM", "show the code in this program, such as meld"),
    Option(
        ("--smooth",),
        "smooth",
        "WEIGHT",
        "an exponential mean of this weight, 0 to 0.999, over the raw line",
        _weight,
    ),
    Option(("--log",), "log", "AXES", "logarithmic axes: y, x or xy", _one_of("x", "y", "xy")),
    Option(("-x", "--x-axis"), "x", "AXIS", "step (default), time, or the name of a metric"),
    Option(("--all-ranks",), "all_ranks", "", "a line for each rank, not for the lowest alone"),
    Option(
        ("--apart",), "apart", "", "each attempt by itself, with steps that were done again later"
    ),
    Option(
        ("--joined",),
        "joined",
        "",
        "with --json: attempts as one series, steps that were done again once",
    ),
    Option(("--table",), "tables", "NAME", "this table only; may be repeated", None, many=True),
    Option(
        ("--status", "--filters"),
        "status",
        "STATES",
        "jobs in these states; without it failed and stopped ones are left out",
        _their_states,
    ),
    Option(
        ("--run_ids", "--run-ids"),
        "run_ids",
        "IDS",
        "ids with commas between them",
        _ids,
        many=True,
    ),
    Option(
        ("--port",),
        "port",
        "N",
        "the port on this machine; default: the first free one from 6006 on",
        _count,
    ),
    Option(
        ("--linger",),
        "linger_s",
        "TIME",
        "end so long after the last job has ended",
        _duration_or_zero,
    ),
    Option(
        ("--tolerance",),
        "tolerance",
        "X",
        "relative difference that counts as equal; default 0.01",
        _tolerance,
    ),
    Option(("--operate",), "operate", "", "let it also stop jobs and run them again"),
    Option(("--md",), "md", "", "the answer as a Markdown table on stdout"),
    Option(
        ("--columns",),
        "columns",
        "NAMES",
        "these columns, separated by commas; metrics and config keys, too",
        _names,
    ),
    Option(("--limit",), "limit", "N", "at most N jobs; default 50 in a terminal", _count),
    Option(("-v", "--verbose"), "verbose", "", "say more"),
    Option(("-y", "--yes"), "yes", "", "do it without asking"),
    Option(("--rank",), "rank", "N", "one rank only", _count_or_zero),
    Option(("--task",), "task", "NAME", "one task only, such as worker-0", _name),
    Option(("--print",), "print_only", "", "only print the command"),
    Option(
        ("--stream",),
        "stream",
        "NAME",
        "stdout, stderr, agent, or log: the records of logging",
        _one_of(*STREAMS),
    ),
    Option(("--level",), "level", "LEVEL", "records from this level on, such as WARNING or 25"),
    Option(("--attempt",), "attempt", "K", "that attempt; default: the last", _count),
    Option(("--tail",), "tail", "LINES", "the last lines only", _count_or_zero),
    Option(("--bytes",), "bytes", "N", "the last N bytes only", _size),
    Option(("-f", "--follow"), "follow", "", "go on as the job writes more"),
    Option(("--grep",), "grep", "REGEX", "lines that match; searched by the server", _pattern),
    Option(
        ("-m", "--metric"), "metrics", "NAME", "this metric only; may be repeated", None, many=True
    ),
    Option(
        ("--points",),
        "points",
        "N",
        "about N points per series, extremes kept; default: every point",
        _count,
    ),
    Option(("--assets",), "assets", "", "download the new bytes of each log to ./assets/<id>/"),
    Option(("-o", "--output"), "output", "FILE", "the file to write"),
    Option(
        ("--from",),
        "from_tracker",
        "NAME",
        "what kept it: wandb, mlflow, tensorboard or csv; default: what it looks like",
        _tracker,
    ),
    Option(
        ("--type",),
        "type",
        "NAME",
        "what kind of artifact it is, such as model or data; default file",
    ),
    Option(("--csv",), "csv", "", "the answer as CSV on stdout"),
    Option(("--native",), "native", "", "frames of C code, too, where py-spy may be used"),
    Option(("--watch",), "watch", "", "again every second, until Ctrl-C"),
    Option(("--ledger",), "ledger", "", "where the time went"),
    Option(("--last",), "last", "", "what was collected last, without asking"),
    Option(("--html",), "html", "FILE", "write one page that opens offline"),
    Option(("--secrets",), "secrets", "", "which variables here would be masked, and which not"),
    Option(
        ("--acknowledge",), "acknowledge", "", "what was damaged has been seen: tell it no more"
    ),
    Option(("--dry-run",), "dry_run", "", "say what would be done, and do nothing"),
    Option(("--job-schema",), "job_schema", "", "the JSON Schema of job files, for editors"),
    Option(
        ("--monitor",),
        "monitor",
        "ADDRESS",
        "the server on another machine, HOST:PORT, or a unix socket",
    ),
    Option(("--address",), "address", "ADDRESS", "where to listen, such as :10200"),
    Option(
        ("--host",),
        "hosts",
        "NAME",
        "a further name that others reach it by; may be repeated",
        None,
        many=True,
    ),
    Option(("--foreground",), "foreground", "", "serve in this process, until it is stopped"),
    Option(
        ("--new-certificate",),
        "new_certificate",
        "",
        "make a new certificate; others must join again",
    ),
    Option(("--pin",), "pin", "PIN", "the fingerprint that the certificate must have"),
    Option(("--role",), "role", "ROLE", "this role of the job only", _name),
    Option(
        ("--logs",), "logs", "", "diagnose these files instead; Headway need not have run the job"
    ),
    Option(
        ("--exit-code",),
        "exit_code",
        "N",
        "the exit code of the job that wrote the logs",
        _exit_code,
    ),
    Option(("--signal",), "signal", "NAME", "the signal that ended it, such as 9 or KILL", _signal),
    Option(("--json",), "json", "", "the answer as JSON on stdout"),
    Option(("-h", "--help"), "help", "", "this text"),
    Option(("--version",), "version", "", "the version of Headway"),
)
BY_NAME: Final[Mapping[str, Option]] = {name: option for option in OPTIONS for name in option.names}
BY_KEY: Final[Mapping[str, Option]] = {option.key: option for option in OPTIONS}
EVERYWHERE: Final = ("json", "help", "version")

Given = list[tuple[Option, str, str]]  # (option, the name it was given by, its text)


class Parser:
    """One reading of a command line. `command` is known even when reading fails later: it decides
    the exit code.
    """

    def __init__(self, commands: Mapping[str, Command]) -> None:
        self.commands = commands
        self.command: Command | None = None
        self.said = ""  # a verb of another tool was taken for one of ours

    def parse(self, argv: Sequence[str]) -> Parsed:
        given: Given = []
        rest = list(argv)
        try:
            rest = self._take_options(rest, given)
        except UsageError:
            self.command = next(
                (self.commands[word] for word in rest if word in self.commands), None
            )
            raise
        parsed = Parsed()
        if rest and rest[0] != "--":
            self.command = parsed.command = self._verb(rest.pop(0), rest)
            self._take_words(rest, given, parsed)
        elif rest:
            raise UsageError(
                "a command of hw must stand before `--`", "for example: hw run -- ./train --fast"
            )
        parsed.values = self._values(given)
        return parsed

    def _verb(self, word: str, rest: list[str]) -> Command:
        command = self.commands.get(word)
        if command is not None:
            return command
        from headway.settings.nearest import did_you_mean
        from headway.views.cli import other_words

        instead = other_words.instead(word, rest)
        if instead is not None:
            raise UsageError(f'there is no command "{word}" here', f"that is: {instead}")
        if word in other_words.LOOKING and other_words.LOOKING[word][0] in self.commands:
            verb, *more = other_words.LOOKING[word]
            rest[:0] = more
            self.said = f'hw: "{word}" is called: hw {" ".join([verb, *more])}'
            return self.commands[verb]

        meant = did_you_mean(word, self.commands)
        hint = "`hw --help` lists the commands"
        if not meant and (rest or "/" in word or "." in word):
            from headway.views.text.format import shell_words

            hint = f"to run a command: hw run {shell_words([word, *rest])[:200]}"
        raise UsageError(f'there is no command "{word[:60]}"{meant}', hint)

    def _take_options(self, words: list[str], given: Given) -> list[str]:
        """Read options from the front of `words`; what is left starts with a word that is none."""
        position = 0
        while position < len(words) and _is_option(words[position]):
            position = self._take_option(words, position, given)
        return words[position:]

    def _take_option(self, words: list[str], position: int, given: Given) -> int:
        word = words[position]
        name, text = _split(word)
        option = BY_NAME.get(name)
        if option is None:
            raise self._unknown(name)
        if not option.value:
            if option.read is not None:
                return self._take_flag(words, position, given, option, name, text)
            if text is not None:
                raise UsageError(f"{name} takes no value", f"found: {word[:60]}")
            given.append((option, name, ""))
            return position + 1
        if text is None:
            position += 1
            if position >= len(words):
                raise UsageError(f"{name} needs a value: {name} {option.value}", option.help)
            text = words[position]
        given.append((option, name, text))
        return position + 1

    def _take_flag(
        self, words: list[str], position: int, given: Given, option: Option, name: str, text: str | None
    ) -> int:  # fmt: skip
        """A flag that may have a value: after `=`, or a folder in the next word, which no command
        can be.
        """
        if text is None and position + 1 < len(words):
            import os

            after = words[position + 1]
            if after.endswith("/") or os.path.isdir(after):
                text, position = after, position + 1
        given.append((option, name, text or ""))
        return position + 1

    def _take_words(self, rest: list[str], given: Given, parsed: Parsed) -> None:
        assert self.command is not None
        rest = self._take_options(rest, given)
        if self.command.takes_command:
            parsed.words = rest[1:] if rest[:1] == ["--"] else rest
            return
        while rest:
            if rest[0] == "--":
                parsed.after = rest[1:]
                return
            parsed.words.append(rest.pop(0))
            rest = self._take_options(rest, given)

    def _values(self, given: Given) -> JsonObject:
        allowed = (*(self.command.options if self.command else ()), *EVERYWHERE)
        values: JsonObject = {}
        for option, name, text in given:
            if option.key not in allowed:
                raise self._unknown(name)
            value = text if option.value else True
            if option.read:
                value = option.read(text, name)
            if option.many:
                values.setdefault(option.key, []).append(value)
            elif option.key in values and values[option.key] != value:
                raise UsageError(
                    f"{name} is given twice, with different values", "keep one of them"
                )
            else:
                values[option.key] = value
        return values

    def _unknown(self, name: str) -> UsageError:
        from headway.settings.nearest import did_you_mean

        command = self.command
        if command is None and name in BY_NAME:
            return UsageError(
                f"{name} is for a command of hw, and none was given",
                "for example: hw -n 4 run python train.py",
            )
        if command is None:
            return UsageError(
                f'hw has no option "{name[:60]}"{did_you_mean(name, BY_NAME)}',
                "hw --help lists them",
            )
        names = [n for key in (*command.options, *EVERYWHERE) for n in BY_KEY[key].names]
        hint = f"hw {command.name} --help lists its options"
        if command.takes_command:
            hint += f"; if it belongs to the command: hw {command.name} -- {name} …"
        return UsageError(
            f'hw {command.name} has no option "{name[:60]}"{did_you_mean(name, names)}', hint
        )


def _is_option(word: str) -> bool:
    return word.startswith("-") and word not in ("-", "--")


def _split(word: str) -> tuple[str, str | None]:
    """`--tail=5` and `-n8` hold their value; `--tail 5` does not."""
    if word.startswith("--"):
        name, equals, text = word.partition("=")
        return name, text if equals else None
    return (word[:2], word[2:].removeprefix("=") or None) if len(word) > 2 else (word, None)
