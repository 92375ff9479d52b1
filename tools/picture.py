"""Makes a picture of a terminal from a real run: runs commands in a pseudo-terminal and writes what
they showed as SVG.

    tools/picture.py docs/images/run.svg [--columns 100] [--keep 24] -- 'hw run -n 4 …' ['hw q ID'
    …] tools/picture.py docs/images/watch.svg --view 6 --rows 24 -- 'hw run -n 4 …'

`ID` stands for the job of the command before. With `--view S`, the picture is the live view of the
last command as it was after S seconds, when `q` is pressed. Nothing is drawn that was not printed;
only rows may be left out, and a line then says how many. Text stays text in the picture, so it can
be searched and read aloud.
"""

import argparse
import fcntl
import html
import itertools
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from screen import PLAIN, Cell, Screen, Style

CELL_WIDTH, CELL_HEIGHT, MARGIN = 8.4, 19, 16
BACKGROUND, TEXT, FAINT = "#16181d", "#d8dee9", "#7b8494"
COLORS = (
    "#3b4252", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dee9",
    "#5c6370", "#ef8891", "#b5d69a", "#f0d399", "#82c4f7", "#d79ae6", "#7fcbd4", "#ffffff",
)  # fmt: skip


def run(command: str, columns: int, rows: int = 40, view_s: float | None = None) -> str:
    """What the command wrote to a terminal of its own, decoded."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    env = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {
        "TERM": "xterm-256color"
    }
    child = subprocess.Popen(
        ["sh", "-c", command],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=env,
        start_new_session=True,
    )
    os.close(terminal)
    pieces = []
    leave_s = None if view_s is None else time.monotonic() + view_s
    while True:
        if (
            leave_s is not None
            and not select.select([controller], [], [], max(leave_s - time.monotonic(), 0))[0]
        ):
            os.write(controller, b"q")
            leave_s = None
            continue
        try:
            piece = os.read(controller, 65536)
        except OSError:  # Linux says so when the last writer has gone
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(controller)
    child.wait()
    return b"".join(pieces).decode(errors="replace")


def shorten(rows: list[list[Cell]], keep: int) -> list[list[Cell]]:
    """The first and last rows of a long output, and between them how many are left out."""
    if len(rows) <= keep:
        return rows
    first = keep // 3
    left_out = len(rows) - keep + 1
    note = [(character, Style(dim=True)) for character in f"… {left_out} lines …"]
    return [*rows[:first], note, *rows[-(keep - first - 1) :]]


def job_in(rows: list[list[Cell]]) -> str:
    """The unique end of the first job id that is on the screen."""
    text = "\n".join("".join(character for character, _ in row) for row in rows)
    found = re.search(r"\b[\w.-]+-([0-9a-hjkmnp-tv-z]{5})\b", text)
    return found[1] if found else ""


def svg(rows: list[list[Cell]], columns: int, title: str) -> str:
    width = columns * CELL_WIDTH + 2 * MARGIN
    height = len(rows) * CELL_HEIGHT + 2 * MARGIN
    body = "\n".join(row_svg(row, number) for number, row in enumerate(rows) if row)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">\n<title>{html.escape(title)}</title>\n'
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>\n'
        f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14" fill="{TEXT}" '
        f'style="white-space: pre" xml:space="preserve">\n{body}\n</g>\n</svg>\n'
    )


def row_svg(row: list[Cell], number: int) -> str:
    y = MARGIN + number * CELL_HEIGHT + 14
    spans, column = [], 0
    for style, cells in itertools.groupby(row, key=lambda cell: cell[1]):
        shown = list(cells)
        for first, wide, text in words(shown):
            spans.append(
                f'<text x="{MARGIN + (column + first) * CELL_WIDTH:.1f}" y="{y}" '
                f'textLength="{wide * CELL_WIDTH:.1f}"{attributes(style)}>{html.escape(text, quote=False)}</text>'
            )
        column += len(shown)
    return "".join(spans)


def words(cells: list[Cell]) -> list[tuple[int, int, str]]:
    """Column, width and text of what stands in a row, without the spaces around it: browsers make
    one space of many.
    """
    # the second half of a wide character keeps its place
    text = "".join(character or "\0" for character, _ in cells)
    return [
        (found.start(), len(found[0]), found[0].replace("\0", ""))
        for found in re.finditer(r"\S+(?: \S+)*", text)
    ]


def attributes(style: Style) -> str:
    fill = FAINT if style.dim else None if style.color is None else COLORS[style.color]
    return (f' fill="{fill}"' if fill else "") + (' font-weight="bold"' if style.bold else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("commands", nargs="+")
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument(
        "--view", type=float, metavar="S", help="the live view of the last command after S seconds"
    )
    parser.add_argument("--keep", type=int, default=24, help="rows of one command's output")
    options = parser.parse_args()
    rows: list[list[Cell]] = []
    job = ""
    for number, template in enumerate(options.commands, 1):
        command = re.sub(r"\bID\b", job, template)
        screen = Screen(options.columns)
        view_s = options.view if number == len(options.commands) else None
        screen.feed(run(command, options.columns, options.rows, view_s))
        job = job_in(screen.lines()) or job
        prompt = [
            ("$", Style(color=2, bold=True)),
            (" ", PLAIN),
            *((c, Style(bold=True)) for c in command),
        ]
        shown = shorten(screen.lines(), options.keep) if view_s is None else screen.last_view
        rows += [*([[]] if rows else []), prompt, *shown]
    options.file.parent.mkdir(parents=True, exist_ok=True)
    options.file.write_text(svg(rows, options.columns, " · ".join(options.commands)))
    print(f"{options.file}: {len(rows)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
