"""How often this process has changed `os.environ`: asked for every log record, where comparing all
variables would take longer than all the rest. Called by client/logging_capture.py.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

changes = [0]
_watched: "list[bool]" = []


def watch() -> None:
    """From now on changes are counted. Once per process; a second call does nothing."""
    if _watched:
        return
    _watched.append(True)
    kind: Any = type(os.environ)
    set_item, del_item = kind.__setitem__, kind.__delitem__

    def __setitem__(self: "Any", key: "Any", value: "Any") -> None:
        set_item(self, key, value)
        changes[0] += 1

    def __delitem__(self: "Any", key: "Any") -> None:
        del_item(self, key)
        changes[0] += 1

    for function in (__setitem__, __delitem__):
        function.__qualname__ = f"{kind.__qualname__}.{function.__name__}"
        setattr(kind, function.__name__, function)
