"""Ids: `<name>-<five characters of base 32>` for people, a UUID inside for identity across homes."""

from __future__ import annotations

import re
import secrets
import unicodedata
import uuid as _uuid

from headway.model.errors import UsageError
from headway.model.limits import JOB_NAME_CHARS_MAX

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford: no i, l, o, u to misread
SUFFIX_CHARS = 5
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")


def new_uuid() -> str:
    return str(_uuid.uuid4())


def new_suffix() -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(SUFFIX_CHARS))


def check_name(name: str) -> str:
    """A job's or experiment's name: a plain word, so that it is safe as a path, a label and a
    column.
    """
    if len(name) > JOB_NAME_CHARS_MAX or not _NAME.match(name) or ".." in name:
        raise UsageError(
            f"the name {name[:80]!r} is not allowed",
            f"use a-z, A-Z, digits, '_', '-' and '.', at most {JOB_NAME_CHARS_MAX}, starting with a letter or digit",
        )
    return name


def _module_of(argv: list[str]) -> str | None:
    """`pkg.train` of `python -m pkg.train`; launchers such as torch.distributed.run have a script of
    their own behind them, which is the better name.
    """
    program = argv[0].rsplit("/", 1)[-1] if argv else ""
    if not program.startswith(("python", "pypy")) or "-m" not in argv[1:-1]:
        return None
    place = argv.index("-m", 1)
    if any(not word.startswith("-") for word in argv[1:place]):
        return None  # it belongs to a script's own words
    rest = argv[place + 2 :]
    if any(word.endswith((".py", ".sh")) for word in rest):
        return None
    return argv[place + 1]


def name_from_command(argv: list[str]) -> str:
    """`python -u src/train.py --lr 1` is called `train`: the script if there is one, else the
    program.
    """
    words = [w for w in argv if not w.startswith("-")]
    module = _module_of(argv)
    if module is not None:
        words = [
            module.rsplit(".", 1)[-1]
            if module.rsplit(".", 1)[-1] != "__main__"
            else module.split(".")[0]
        ]
    script = next((w for w in words if w.endswith((".py", ".sh"))), words[0] if words else "job")
    base = (
        script.rsplit("/", 1)[-1].rsplit(".", 1)[0]
        if "." in script.rsplit("/", 1)[-1]
        else script.rsplit("/", 1)[-1]
    )
    plain = unicodedata.normalize("NFKD", base).encode("ascii", "ignore").decode()
    cleaned = re.sub(r"[^A-Za-z0-9_-]+", "-", plain).strip("-")[:JOB_NAME_CHARS_MAX]
    return cleaned or "job"
