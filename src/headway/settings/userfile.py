"""Changing one value of the user's `config.yaml` and nothing else in it. For `hw config set` and
`hw clusters use`.

The line of that name is replaced, or one is added; comments and order stay. The new text is read
back before it takes the place of the old, so a file can never be left that Headway does not
understand.
"""

import json
import os
import re
from pathlib import Path

from headway.home import paths
from headway.home.ownership import make_private
from headway.model.errors import UsageError
from headway.settings import yamlfile
from headway.settings.layers import USER_FILE
from headway.settings.nearest import did_you_mean
from headway.settings.schema import SETTINGS


def set_value(name: str, value: object) -> Path:
    """Remember a setting for every project. Returns the file."""
    setting = SETTINGS.get(name)
    if setting is None:
        raise UsageError(
            f'there is no setting "{name[:60]}"{did_you_mean(name, SETTINGS)}',
            "hw config lists them all",
        )
    if name == "clusters":
        raise UsageError(
            "clusters are a mapping, which is written by hand", "edit headway.yaml or config.yaml"
        )
    parsed = setting.parse(value, name)
    path = paths.config_folder() / USER_FILE
    old = path.read_text("utf-8") if path.exists() else ""
    line = f"{name}: {json.dumps(value if isinstance(value, str) and isinstance(parsed, str | float) else parsed)}"
    pattern = re.compile(rf"^{re.escape(name)}[ \t]*:.*$", re.MULTILINE)
    new = (
        pattern.sub(lambda _: line, old, count=1)
        if pattern.search(old)
        else f"{_ended(old)}{line}\n"
    )
    _check(new, path, name, parsed)
    _write(path, new)
    return path


def unset_value(name: str) -> Path:
    """Take a setting out of the user's file again. Returns the file."""
    if name not in SETTINGS:
        raise UsageError(
            f'there is no setting "{name[:60]}"{did_you_mean(name, SETTINGS)}',
            "hw config lists them all",
        )
    path = paths.config_folder() / USER_FILE
    old = path.read_text("utf-8") if path.exists() else ""
    pattern = re.compile(rf"^{re.escape(name)}[ \t]*:.*\n?", re.MULTILINE)
    if not pattern.search(old):
        raise UsageError(f"{path} does not hold {name}", f"hw config {name} says where it is from")
    new = pattern.sub("", old, count=1)
    root = yamlfile.parse(new, str(path))
    if isinstance(root.value, dict) and name in root.value:
        raise UsageError(
            f"{path} is written in a way that cannot be changed from here",
            f"take {name} out of it by hand",
        )
    _write(path, new)
    return path


def _write(path: Path, text: str) -> None:
    make_private(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    # nobody else may write it, whatever the umask: it is obeyed
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(draft, path)


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def _check(text: str, path: Path, name: str, parsed: object) -> None:
    """A value over several lines, or one that is written in another way, cannot be replaced like
    this.
    """
    root = yamlfile.parse(text, str(path))
    node = root.value.get(name) if isinstance(root.value, dict) else None
    if node is None or SETTINGS[name].parse(node.plain(), name) != parsed:
        raise UsageError(
            f"{path} is written in a way that cannot be changed from here",
            f"write {name} into it by hand",
        )
