"""A canary secret, sent through every door, is found nowhere in the home after the job has ended
(Sec9, Sec10, P14).
"""

from pathlib import Path

from tests.driver import PYTHON, Hw, files_with
from tests.waiting import wait_until

CANARY = "c4n4ry-Zq8vT1-do-not-store"

SCRIPT = """
import os, sys, logging
import headway as hw
secret = os.environ["MY_API_TOKEN"]
config = {"lr": 0.1, "api_key": secret, "note": f"uses {secret} inside", "nested": [{"password": secret}]}
hw.init(config=config, tags=["ok"])
hw.log({"loss": 1.0}, step=0)
print("the secret is", secret, "and again:" + secret * 2)
sys.stdout.write(secret[:10]); sys.stdout.flush(); sys.stdout.write(secret[10:] + "\\n")
print(secret, file=sys.stderr)
raise RuntimeError(f"could not log in with {secret}")
"""


def test_a_canary_secret_is_found_nowhere_after_the_end(home: Path, tmp_path: Path) -> None:
    hw = Hw(home, tmp_path)
    job = hw.submit(
        "--tag",
        "canary",
        PYTHON,
        hw.script(SCRIPT),
        "--api-key",
        CANARY,
        env={"MY_API_TOKEN": CANARY},
    )
    found = hw.wait_ended(job)
    assert found["state"] == "failed" and found["config"]["lr"] == 0.1
    raw = [home / "spool", home / "env"]
    wait_until(
        lambda: not any(files_with(folder, CANARY) for folder in raw),
        what="the spool to be cleared",
    )
    assert files_with(home, CANARY) == []
    shown = [
        hw("q", job),
        hw("logs", job),
        hw("q", job, "--json"),
        hw("ls", "--json"),
        hw("logs", job, "--stream", "stdout"),
    ]
    assert all(CANARY.encode() not in done.stdout + done.stderr for done in shown)
    assert hw("logs", job, "--stream", "stdout").stdout.count(b"*" * len(CANARY)) >= 3
    assert "RuntimeError" in str(found["attempts"][0]["cause"]["text"])
