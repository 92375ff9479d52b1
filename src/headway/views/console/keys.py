"""Bytes of a keyboard as names of keys. Called by `stage`; holds what of a sequence has come so
far.

A lone escape and the start of a sequence are the same byte: `flush`, after a short wait, says that
no more came.
"""

import re
from typing import Final

_NAMES: Final = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left", "\x1bOA": "up", "\x1bOB": "down",
    "\x1bOC": "right", "\x1bOD": "left", "\x1b[5~": "pgup", "\x1b[6~": "pgdn", "\x1b[H": "home", "\x1b[F": "end",
    "\x1bOH": "home", "\x1bOF": "end", "\x1b[1~": "home", "\x1b[4~": "end", "\x1b[7~": "home", "\x1b[8~": "end",
    "\r": "enter", "\n": "enter", " ": "space", "\x7f": "backspace", "\x08": "backspace", "\x03": "ctrl-c",
    "\x15": "ctrl-u", "\x0c": "ctrl-l", "\x06": "pgdn", "\x02": "pgup", "\x1b": "esc",
}  # fmt: skip
_SEQUENCE: Final = re.compile(
    r"\x1b(?:\[[0-9;?<]*[ -/]*[@-~]|O[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))"
)
_PARTIAL: Final = re.compile(r"\x1b(?:\[[0-9;?<]*[ -/]*|O|\][^\x07\x1b]*)?\Z")
_HELD_CHARS_MAX: Final = 256  # a sequence that does not end is dropped


class Keys:
    def __init__(self) -> None:
        self._held = b""

    @property
    def waits(self) -> bool:
        """Whether a sequence, or a character of several bytes, has begun and not ended."""
        return bool(self._held)

    def feed(self, data: bytes) -> list[str]:
        text, self._held = self._decode(self._held + data)
        found: list[str] = []
        position = 0
        while position < len(text):
            sequence = _SEQUENCE.match(text, position)
            if sequence:
                found += [_NAMES[sequence[0]]] if sequence[0] in _NAMES else []
                position = sequence.end()
            elif _PARTIAL.match(text, position) and len(text) - position < _HELD_CHARS_MAX:
                self._held = text[position:].encode() + self._held
                break
            else:
                char = text[position]
                found += [_NAMES.get(char, char)] if char in _NAMES or char.isprintable() else []
                position += 1
        return found

    def flush(self) -> list[str]:
        """Nothing more has come: an escape alone is the key; a torn sequence is nothing."""
        held, self._held = self._held, b""
        return ["esc"] if held == b"\x1b" else []

    @staticmethod
    def _decode(data: bytes) -> tuple[str, bytes]:
        for keep in range(min(3, len(data)) + 1):
            try:
                return data[: len(data) - keep].decode(), data[len(data) - keep :]
            except UnicodeDecodeError:
                continue
        return data.decode("utf-8", "ignore"), b""
