"""`hw.on_preempt`: with the program's own handlers, from threads, and with callbacks that fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, signal, sys, threading
import headway as hw
how = sys.argv[1]
if how == "own":
    signal.signal(signal.SIGTERM, lambda *_: (print("own", flush=True), sys.exit(5)))
def save(): print("saved", flush=True)
def bad(): raise ValueError("bad")
def leave(): sys.exit(200)
if how == "thread":
    thread = threading.Thread(target=hw.on_preempt, args=(save,)); thread.start(); thread.join()
else:
    assert hw.on_preempt(save) is save
if how == "bad": hw.on_preempt(bad)
if how == "leave": hw.on_preempt(leave)
signal.raise_signal(signal.SIGUSR1)
print("on", flush=True)
signal.raise_signal(signal.SIGTERM)
print("never", flush=True)
"""


@pytest.mark.parametrize(
    ("how", "out", "code"),
    [
        ("plain", "saved on saved", -15),
        ("own", "saved on saved own", 5),
        ("thread", "saved on saved", -15),
        ("bad", "saved on saved", -15),
        ("leave", "saved", 200),
    ],
)
def test_callbacks_are_called_and_the_signal_keeps_its_effect(
    how: str, out: str, code: int, tmp_path: Path
) -> None:
    source = str(Path(__file__).parents[2] / "src")
    env = dict(os.environ) | {"PYTHONPATH": source, "HEADWAY_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how],
        env=env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.stdout.split(), done.returncode) == (out.split(), code), done.stderr
