"""The log of a job as one page that opens offline, with its colours: what `hw logs --html` writes.

Pure; what a job wrote goes in escaped, and the page's own policy lets no script run.
"""

import html
import re
from collections.abc import Iterable
from typing import Final

from headway.model.json_types import JsonObject
from headway.wire import display

_SGR: Final = re.compile(r"\x1b\[([0-9;]*)m")
_COLOURS: Final = ("#555", "#c0392b", "#2a9d4a", "#b08800", "#2f6fd0", "#9b4fc0", "#1a8f98", "#999")
_STYLE: Final = (
    ":root{color-scheme:light dark}body{font:13px/1.45 ui-monospace,monospace;margin:1.5rem}"
    "h1{font:600 1.1rem system-ui,sans-serif}p{opacity:.7}pre{margin:0;white-space:pre-wrap}"
    "i{font-style:normal;opacity:.55;user-select:none}.stderr{border-left:3px solid #c0392b;padding-left:.4rem}"
    "b{font-weight:700}"
)


def render(title: str, words: Iterable[str], lines: Iterable[JsonObject]) -> Iterable[str]:
    """The page, piece by piece: a log may be long."""
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{html.escape(title)}</h1>\n"
    )
    for text in words:
        yield f"<p>{html.escape(text)}</p>\n"
    for line in lines:
        time, rank = str(line.get("time") or ""), line.get("rank")
        front = f"{time[11:23]:<12} {'' if rank is None else rank:>3} │ "
        kind = ' class="stderr"' if line.get("stream") == "stderr" else ""
        shown = display.line(str(line.get("text", "")), color=True)
        yield f"<pre{kind}><i>{html.escape(front)}</i>{_coloured(shown)}</pre>\n"
    yield "</body>\n</html>\n"


def _coloured(text: str) -> str:
    """Colours and weight of the text as spans; all else of a sequence is left out."""
    parts: list[str] = []
    position, is_open = 0, False
    for found in _SGR.finditer(text):
        parts.append(html.escape(text[position : found.start()]))
        position = found.end()
        if is_open:
            parts.append("</span>")
            is_open = False
        style = _style(found[1])
        if style:
            parts.append(f'<span style="{style}">')
            is_open = True
    parts.append(html.escape(text[position:]))
    return "".join(parts) + ("</span>" if is_open else "")


def _style(codes: str) -> str:
    found = []
    for code in (int(word) for word in codes.split(";") if word):
        if code == 1:
            found.append("font-weight:700")
        elif 30 <= code <= 37:
            found.append(f"color:{_COLOURS[code - 30]}")
        elif 90 <= code <= 97:
            found.append(f"color:{_COLOURS[code - 90]}")
    return ";".join(found)
