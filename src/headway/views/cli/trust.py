"""`hw trust [PATH | remove PATH]`: project files of other owners that are obeyed all the same."""

from pathlib import Path

from headway.home.ownership import file_problem
from headway.model.errors import NotFoundError, UsageError
from headway.settings import trust
from headway.settings.project import PROJECT_FILE
from headway.views.cli.dispatch import Call


def command(call: Call) -> int:
    words = [*call.words, *(call.after or [])]
    if len(words) == 2 and words[0] == "remove":
        return _remove(call, _named(words[1]))
    if len(words) > 1 or words == ["remove"]:
        raise UsageError("hw trust takes one path, or: remove PATH", f"usage: {call.command.usage}")
    if words:
        return _add(call, _named(words[0]))
    return _list(call)


def _list(call: Call) -> int:
    known = trust.trusted()
    if call.as_json:
        call.terminal.put_json([{"path": path} for path in known])
        return 0
    for path in known:
        call.terminal.put(call.terminal.out.safe(path))
    if not known:
        call.terminal.say("no project file of another owner is trusted; yours always are")
    return 0


def _named(word: str) -> Path:
    """A folder stands for the project's file in it."""
    path = Path(word).expanduser().absolute()
    return path / PROJECT_FILE if path.is_dir() else path


def _add(call: Call, path: Path) -> int:
    if not path.is_file():
        raise NotFoundError(f"there is no file {path}", "give the path of a headway.yaml")
    needed = file_problem(path)
    real = trust.add(path)
    if call.as_json:
        call.terminal.put_json({"path": str(real), "trusted": True})
        return 0
    why = f" ({needed})" if needed else ", though it needed no trust: it is yours alone"
    call.terminal.say(f"{real} is trusted from now on{why}")
    call.terminal.say(f"whoever can change it steers your jobs; to undo: hw trust remove {real}")
    return 0


def _remove(call: Call, path: Path) -> int:
    if not trust.remove(path):
        raise NotFoundError(f"{path} is not trusted", "hw trust lists what is")
    if call.as_json:
        call.terminal.put_json({"path": str(path), "trusted": False})
    else:
        call.terminal.say(f"{path} is not trusted any more")
    return 0
