"""Tells the person at this machine, through `notify-send` where it is installed. Called by
`notifier.py`.
"""

import os
import shutil
from pathlib import Path

from headway.model.json_types import JsonMapping
from headway.server.notify.channels import command_channel
from headway.server.notify.outcome import Outcome

TOOL = "notify-send"
_URGENT = frozenset({"failed", "stalled"})


def send(facts: JsonMapping, timeout_s: float) -> Outcome:
    tool = shutil.which(TOOL)
    if tool is None:
        return Outcome(False, f"{TOOL} is not installed; on Debian: apt install libnotify-bin")
    urgency = "critical" if facts.get("kind") in _URGENT else "normal"
    title, text = f"Headway: {facts.get('name')} {facts.get('kind')}", str(facts.get("text"))
    words = [tool, "--app-name=Headway", f"--urgency={urgency}", "--", title, _escaped(text)]
    return command_channel.run(words, b"", os.environ | _session(), timeout_s)


def _escaped(text: str) -> str:
    """Desktops read the body as markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _session() -> dict[str, str]:
    """The person's message bus; a server that was started over ssh does not have it in its
    environment.
    """
    bus = Path(f"/run/user/{os.getuid()}/bus")
    if "DBUS_SESSION_BUS_ADDRESS" in os.environ or not bus.exists():
        return {}
    return {"DBUS_SESSION_BUS_ADDRESS": f"unix:path={bus}"}
