"""Plain data as JSON without the `json` module, whose import would take a fifth of the time to the
first log.

Called by `wire/frame.py`. Gives exactly what `json.dumps(value, allow_nan=False, separators=(",",
":"))` gives.
"""

from __future__ import annotations

try:
    from _json import encode_basestring_ascii as _quote
except ImportError:  # a Python without the C part
    from json.encoder import py_encode_basestring_ascii as _quote

TYPE_CHECKING = False  # `typing` itself costs the client's cold start some milliseconds
if TYPE_CHECKING:
    pass

quoted = _quote  # a string with its quotation marks


def dumps(value: object) -> str:
    """TypeError for what is not plain data, ValueError for NaN and infinities."""
    if isinstance(value, str):
        return quoted(value)
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        if value - value != 0:
            raise ValueError(f"{value} is not a number of JSON")
        return float.__repr__(value)
    if isinstance(value, (list, tuple)):
        return "[" + ",".join([dumps(item) for item in value]) + "]"
    if isinstance(value, dict):
        return "{" + ",".join([f"{_key(key)}:{dumps(item)}" for key, item in value.items()]) + "}"
    raise TypeError(f"{type(value).__name__} is not plain data")


def _key(key: object) -> str:
    if isinstance(key, str):
        return quoted(key)
    if key is None or isinstance(key, (int, float)):
        return f'"{dumps(key)}"'
    raise TypeError(f"{type(key).__name__} is not the name of a field")
