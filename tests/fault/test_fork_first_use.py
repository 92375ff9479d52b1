"""A fork while other threads make their first call never hangs, neither parent nor child (A-12, P1)."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROUNDS = 500
# Each round is a process of its own in which nothing of the client is loaded yet: threads make the
# first calls, and the main thread forks in between.
PROGRAM = """
import os, signal, sys, threading, time
import headway as hw

def one(number):
    signal.alarm(60)  # ends a process that hangs
    delay = (number % 25) * 0.002
    def log():
        for i in range(3):
            hw.log({"x": float(i)})
    threads = [threading.Thread(target=log) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(delay)
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        hw.log({"y": 1.0})
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    for thread in threads:
        thread.join()
    os._exit(code & 0xFF)

hung, running, number, rounds = 0, set(), 0, int(sys.argv[1])
while number < rounds or running:
    while number < rounds and len(running) < 4:
        pid = os.fork()
        if pid == 0:
            one(number)
        running.add(pid)
        number += 1
    pid, status = os.wait()
    running.discard(pid)
    hung += status != 0
print(hung)
"""


def test_forks_during_first_calls_never_hang(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir(mode=0o700)
    (spool / "task.json").write_text(json.dumps({"version": 1}))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ROUNDS)],
        env={**os.environ, "HEADWAY_SPOOL": str(spool), "HEADWAY_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "0", "of so many, how many hung"
