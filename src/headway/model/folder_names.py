"""Names around the folders of a job: the variables that programs read, and the files that the agent
and the carrier leave for each other in a task's spool. Called by agent, carrier, engines, server
and views.
"""

from __future__ import annotations

import os

# what to bring and to send, with the keys for it; 0600, written by the engine
PRIVATE = "folders.json"
STATE = "folders.state"  # how far the carrier is; written by the carrier, read by shim and shipper
LOCK = "folders.lock"  # held by the carrier while it lives
END = "folders.end"  # made when the processes are over: what is left is to be sent now
STOP = "folders.stop"  # made when nothing is to be fetched any more
# of a submission: its accounts with their keys, as JSON; no program ever gets it
KEYS = "HEADWAY_STORAGE_KEYS"

# Beside `spool` in a home: what the engine gave to tasks in containers, by the task's name. A
# container can write into its task's folder, and what runs outside must not believe it.
KEPT = "containers"


def kept(task_dir: str) -> str:
    """Where the files are that the engine gave to a task: a folder that its container does not see,
    or else its own, as inside a container and for tasks that are in none.
    """
    task_dir = os.path.abspath(task_dir)
    home, name = os.path.dirname(os.path.dirname(task_dir)), os.path.basename(task_dir)
    found = os.path.join(home, KEPT, name)
    return found if os.path.exists(os.path.join(found, "task.json")) else task_dir


FETCHING, READY, FINISHING, DONE, FAILED = "fetching", "ready", "finishing", "done", "failed"


def variable(name: str) -> str:
    """`HEADWAY_FOLDER_DATA` of the folder `data`; `HEADWAY_FOLDER_OUT_MODELS` of `out/models`."""
    return "HEADWAY_FOLDER_" + "".join(
        c.upper() if c.isascii() and c.isalnum() else "_" for c in name
    )
