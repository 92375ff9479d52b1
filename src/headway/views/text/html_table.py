"""A table as one page that opens offline: what `hw compare --html` and its like write. A click on a
title sorts by it. Pure; foreign words go in escaped, and the page's own policy lets nothing run but
its script.
"""

import base64
import hashlib
import html
from typing import Final

from headway.views.text.comparison import Grid

_STYLE: Final = (
    ":root{color-scheme:light dark}body{font:14px/1.4 system-ui,sans-serif;margin:1.5rem}"
    "h1{font-size:1.2rem}p{color:color-mix(in srgb,currentColor 70%,transparent)}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th{position:sticky;top:0;background:Canvas;cursor:pointer;text-align:left;white-space:nowrap}"
    "th,td{padding:.25rem .7rem;border-bottom:1px solid color-mix(in srgb,currentColor 15%,transparent)}"
    "td.n,th.n{text-align:right}td.b{font-weight:700;background:color-mix(in srgb,#2a9d4a 22%,transparent)}"
)
_SCRIPT: Final = (
    "for(const[i,th]of[...document.querySelectorAll('th')].entries())th.onclick=()=>{"
    "const body=document.querySelector('tbody'),up=th.dataset.up!=='1';th.dataset.up=up?'1':'0';"
    "const key=r=>{const t=r.cells[i].textContent,n=parseFloat(t);return Number.isNaN(n)?t:n};"
    "const rows=[...body.rows].sort((a,b)=>{const x=key(a),y=key(b);"
    "const c=typeof x===typeof y?(x<y?-1:x>y?1:0):typeof x==='number'?-1:1;return up?c:-c});"
    "body.append(...rows)}"
)


def render(title: str, words: list[str], grid: Grid) -> str:
    policy = f"default-src 'none'; style-src '{_digest(_STYLE)}'; script-src '{_digest(_SCRIPT)}'"
    head = "".join(
        f'<th class="n">{html.escape(text)}</th>' if right else f"<th>{html.escape(text)}</th>"
        for text, right in zip(grid.titles, grid.numeric, strict=True)
    )
    rows = []
    for row in grid.rows:
        cells = []
        for cell, right in zip(row, grid.numeric, strict=True):
            classes = ("n " if right else "") + ("b" if cell.is_best else "")
            cells.append(f'<td class="{classes.strip()}">{html.escape(cell.text)}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>\n")
    said = "".join(f"<p>{html.escape(text)}</p>\n" for text in words if text)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{html.escape(title)}</h1>\n{said}<table><thead><tr>{head}</tr></thead>\n<tbody>\n"
        f"{''.join(rows)}</tbody></table>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
