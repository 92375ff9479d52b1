"""What `ps` and `top` call a process of the agent. Called by shim, shipper and the warm launcher."""

import os


def name_process(name: str) -> None:
    """What `ps` and `top` show: a forked process keeps its parent's command line."""
    try:
        fd = os.open("/proc/self/comm", os.O_WRONLY)
    except OSError:
        return  # another system than Linux
    try:
        os.write(fd, name.encode())
    finally:
        os.close(fd)
