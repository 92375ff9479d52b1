"""Text of jobs is data on every terminal: every command, every format, hostile text in every field
(A-4, Sec7, B16).
"""

import os
import pty
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headway.views.cli.commands import COMMANDS
from headway.views.text.terminal import Output
from tests.desk import HW
from tests.driver import Hw

EVIL = (
    "\x1b]0;PWNED\x07\x1b]52;c;SEVJTA==\x07\x1b[2J\x9b31m\x00\x08\x7f\u202eevil\u2066\u200b\x1b[8mhidden"
    "\x1bPq\x1b\\\x1b[6n\r"
)
SGR = re.compile(rb"\x1b\[[0-9;:]{0,48}m")
PROGRAM = f"""
import headway as hw, logging, sys, warnings
EVIL = {EVIL!r}
hw.init(config={{"key" + EVIL: EVIL, "plain": EVIL}}, tags=["t" + EVIL.replace("\\x00", "")])
with hw.timed("timing" + EVIL):
    pass
hw.log({{"metric" + EVIL: 1.0, "loss": 2.0}})
for _ in hw.track(range(2), "bar" + EVIL):
    pass
hw.Usage.checkpoint("mark" + EVIL, 1)
logging.warning("record " + EVIL)
print("out " + EVIL, flush=True)
print("err " + EVIL, file=sys.stderr, flush=True)
raise RuntimeError("error " + EVIL)
"""
# what asks, draws, or changes the world
SKIPPED = {
    "run",
    "submit",
    "simulate",
    "watch",
    "shell",
    "ssh",
    "page",
    "tensorboard",
    "monitor",
    "init",
    "import",
}
WORDS = {
    "server": ["logs"], "sql": ["select * from jobs"], "token": ["ls"], "artifacts": ["ls"], "best": ["-m", "loss"],
    "completion": ["bash"], "storage": ["ls", EVIL.replace("\x00", "")], "ls": [], "clusters": [], "config": [],
    "notify": [], "doctor": [], "gc": ["--dry-run"], "trust": [],
}  # fmt: skip
ASKS = {"abort", "release", "delete", "resubmit", "rename", "bundle", "code", "export", "media"}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hw, str]]:
    """A home with a job that says hostile things wherever it can."""
    folder = tmp_path_factory.mktemp("hostile")
    home = folder / "home"
    home.mkdir(mode=0o700)
    hw = Hw(home, folder)
    hw.script(PROGRAM)
    text = EVIL.replace("\x00", "")
    job = hw.submit("-e", "exp", "--env", f"A={text}", "python", "train.py", text)
    hw.wait_state(job, "failed")
    hw("describe", job, "words " + text)
    yield hw, job
    hw("server", "stop")


def on_terminal(hw: Hw, words: list[str]) -> bytes:
    """What a command writes to a terminal."""
    control, terminal = pty.openpty()
    child = subprocess.Popen(
        [*HW, *words], stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal, cwd=hw.cwd,
        env={**hw.env, "TERM": "xterm-256color", "LANG": "C.UTF-8", "COLUMNS": "200"},
    )  # fmt: skip
    os.close(terminal)
    data = b""
    while True:
        try:
            part = os.read(control, 1 << 16)
        except OSError:
            break
        if not part:
            break
        data += part
    child.wait(60)
    os.close(control)
    return data


def fault(data: bytes) -> str:
    rest = SGR.sub(b"", data.replace(b"\r\n", b"\n"))
    text = rest.decode("utf-8", "replace")
    bad = [char for char in text if not (char.isprintable() or char in "\n\t\u00a0")]
    bad += [char for char in text if char in "\u202e\u2066\u200b\x9b"]
    if b"\x1b[8m" in data:
        bad.append("concealed")
    return f"{sorted(set(bad))!r} in {data[:4000]!r}" if bad else ""


def test_no_command_and_no_format_lets_text_of_a_job_steer_the_terminal(
    hostile: tuple[Hw, str],
) -> None:
    hw, job = hostile
    calls: list[list[str]] = []
    for name, command in COMMANDS.items():
        if name != command.name or name in SKIPPED:
            continue
        words = WORDS.get(name, [job])
        if name == "diff":
            words = [job, job]
        calls.append([name, *words])
        calls.append([name, *words, "--json"])
        calls += [[name, *words, f"--{form}"] for form in ("csv",) if form in command.options]
        if name in ASKS:
            calls = [call for call in calls if call[0] != name] + [[name, job[:-1] + EVIL[:1]]]
    calls += [["logs", job, "--stream", stream] for stream in ("stdout", "stderr", "log", "agent")]
    calls += [
        ["logs", job, "--grep", "out"],
        ["q", EVIL.replace("\x00", "")],
        ["ls", "--match", "out"],
    ]
    calls += [["ls", "-e", EVIL.replace("\x00", "")], [EVIL.replace("\x00", "")]]
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda words: on_terminal(hw, words), calls))
    faults = {
        " ".join(words[:1] + words[-1:])[:60]: found
        for words, data in zip(calls, answers, strict=True)
        if (found := fault(data))
    }
    assert not faults, faults
    assert sum(b"PWNED" in data for data in answers) >= 8, "shown as marks, not left out"


def test_whatever_is_written_to_a_terminal_passes_one_guard(tmp_path: Path) -> None:
    control, terminal = pty.openpty()
    out = Output(terminal, ascii_only=False)
    out.write(f"{EVIL}\n")
    out.write_bytes(f"{EVIL}\n".encode())
    out.write("\x1b[31mour colour\x1b[0m\n")
    out.control("\x1b]0;title\x07")
    data = os.read(control, 1 << 16)
    os.close(control)
    os.close(terminal)
    assert not fault(data), data
    assert b"\x1b[31mour colour" in data and data.count(b"PWNED") == 2
    with open(tmp_path / "file", "wb") as file:
        Output(file.fileno()).write_bytes(EVIL.encode())
    assert (tmp_path / "file").read_bytes() == EVIL.encode(), "a file gets the bytes as they are"
