"""From words to a verb's own file, and from errors to words and exit codes. Called by `main`."""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from headway.model.errors import HeadwayError, UsageError
from headway.model.json_types import JsonObject
from headway.views.cli.commands import COMMANDS
from headway.views.cli.options import Command, Parsed, Parser
from headway.views.text.terminal import BOLD, RED, Terminal

if TYPE_CHECKING:
    from headway.views.api.source import Source

EXIT_OWN_FAILURE: Final = 125  # of `run` and `--wait`, whose other exit codes are the job's
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141


class Call:
    """One use of a verb: what was typed, and where to write."""

    def __init__(
        self,
        command: Command,
        values: JsonObject,
        words: list[str],
        after: list[str] | None,
        terminal: Terminal,
    ) -> None:
        self.command, self.values, self.words, self.after = command, values, words, after
        self.terminal = terminal
        self._sources: list[Source] = []

    def get(self, key: str, default: object = None) -> Any:
        return self.values.get(key, default)

    @property
    def as_json(self) -> bool:
        return bool(self.values.get("json"))

    def source(self, *, start: bool = True) -> "Source":
        """The server; started when none is there, unless `start` is false. With --monitor: that of
        another machine, but for verbs that start jobs, which run here and are shown there.
        """
        from headway.views.api.source import Source

        monitor = None if "processes" in self.command.options else self.values.get("monitor")
        found = Source.to_monitor(monitor) if monitor else Source.connect(start=start)
        found.warn_by(self.terminal.say)
        self._sources.append(found)
        return found

    def close(self) -> None:
        for source in self._sources:
            source.close()


def dispatch(argv: list[str]) -> int:
    terminal = Terminal()
    if argv[:1] == ["help"]:  # as many people type it
        argv = [*argv[1:2], "--help"]
    parser = Parser(COMMANDS)
    waits = False
    try:
        parsed = parser.parse(argv)
        waits = bool(parsed.values.get("wait"))
        if parser.said:
            terminal.say(parser.said)
        return _perform(parsed, terminal)
    except HeadwayError as error:
        failure = error
    except KeyboardInterrupt:
        if terminal.err.is_tty:
            terminal.say()  # the terminal has echoed ^C: the prompt does not go on behind it
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return EXIT_BROKEN_PIPE
    except OSError as error:  # a file of ours, or stdout itself: /dev/full, a disk without room
        failure = HeadwayError(str(error))
    complain(terminal, failure)
    waits = waits or (parser.command is not None and parser.command.name == "run")
    return EXIT_OWN_FAILURE if waits else failure.exit_code


def _perform(parsed: Parsed, terminal: Terminal) -> int:
    if parsed.values.get("version"):
        from headway import __version__

        terminal.put(f"hw {__version__}")
        return 0
    command = parsed.command
    if command is None or parsed.values.get("help"):
        from headway.views.cli import help as pages

        columns = terminal.out.columns
        terminal.put(
            pages.page(columns) if command is None else pages.command_page(command, columns)
        )
        return 0
    _apply_color(terminal)
    verb = importlib.import_module(f"headway.views.cli.{command.name}")
    call = Call(command, parsed.values, parsed.words, parsed.after, terminal)
    try:
        code: int = verb.command(call)
        return code
    finally:
        call.close()


def _apply_color(terminal: Terminal) -> None:
    """The setting `color`. Only a terminal can show any, so nothing is read for a pipe."""
    if not (terminal.out.is_tty or terminal.err.is_tty):
        return
    from pathlib import Path

    from headway.settings.layers import load

    try:
        terminal.set_color(str(load(Path.cwd()).get("color")))
    except (HeadwayError, OSError):
        return  # a verb that needs the settings will say what is wrong with them


def complain(terminal: Terminal, error: HeadwayError) -> None:
    """What was tried and found, then what to type next, on stderr."""
    err = terminal.err
    first, *more = (err.safe(line) for line in error.message.split("\n"))
    terminal.say(f"{err.style('hw:', f'{BOLD};{RED}')} {first}")
    for line in (*more, *(err.safe(line) for line in error.hint.split("\n") if line)):
        terminal.say(f"    {line}")


def one_word(call: Call, what: str) -> str:
    """The only word of a verb that takes one."""
    if len(call.words) != 1 or call.after:
        given = " ".join([*call.words, *(["--", *call.after] if call.after else [])])[:80]
        found = f"not: {given}" if given else "and none was given"
        raise UsageError(
            f"hw {call.command.name} takes one {what}, {found}", f"usage: {call.command.usage}"
        )
    return call.words[0]


def _forget_stdout() -> None:
    """Nobody reads stdout any more: leave nothing that the interpreter would try to flush there."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno() if sys.stdout else 1)
    os.close(null)
