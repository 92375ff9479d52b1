"""Processes of this machine beyond single ones (`wire/identity.py`): groups, children, members of a
task (F29, F30).

Called by shim and shipper.
"""

from __future__ import annotations

import os

from headway.wire.identity import (
    HAS_PROC,
    PROC,
    Identity,
    Status,
    is_alive,
    send,
    start_of,
    status_of,
)

__all__ = ["Identity", "Status", "is_alive", "send", "status_of"]

# set for the shipper of a further run of one process (client/attach.py)
OTHER_RUN_MARK = b"HEADWAY_OTHER_RUN=1"


def send_group(leader: Identity, signum: int) -> bool:
    """Signal a rank and all that it started. Its leader must live: else the number may be somebody
    else's.

    killpg(1) is kill(-1), which means everybody: 1 and below are never a rank's group.
    """
    if leader.pid <= 1:
        return False
    found = status_of(leader.pid)
    if not is_alive(leader) or (HAS_PROC and (found is None or found.group != leader.pid)):
        return False
    try:
        os.killpg(leader.pid, signum)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def everybody() -> list[Status]:
    """All processes that can be seen; empty where there is no /proc."""
    try:
        names = [name for name in os.listdir(PROC) if name.isdigit()]
    except OSError:
        return []
    return [found for name in names if (found := status_of(name)) is not None]


def leftovers(parent: int, groups: set[int], spared_sessions: set[int]) -> list[Status]:
    """Living processes below `parent` or in one of `groups`, but for sessions that are ours."""
    candidates = []
    for status in everybody():
        is_ours = status.session in spared_sessions or status.pid == parent
        if status.state not in "ZX" and not is_ours:
            candidates.append(status)

    below = {parent}
    grew = True
    while grew:  # a child may have a smaller pid than its parent, so go on until nothing is added
        children = {s.pid for s in candidates if s.parent in below} - below
        grew = bool(children)
        below |= children

    found = [s for s in candidates if s.pid in below or s.group in groups]
    return [s for s in found if not _serves_another_run(s.pid)]


def leftovers_below(parent: int, spared_sessions: set[int]) -> list[Status] | None:
    """As `leftovers`, for a parent that is a subreaper since before its first child: then
    everything is below it.

    None where the kernel does not tell who a process's children are. Nobody but the parent reaps
    its children, so none of them is missed; where a child lives, what it may hide below it is found
    by the next look.
    """
    found: list[Status] = []
    seen, left = {parent}, [parent]
    while left:
        children = _children_of(left.pop())
        if children is None:
            return None
        fresh = [
            status for pid in children if pid not in seen and (status := status_of(pid)) is not None
        ]
        seen.update(status.pid for status in fresh)
        fresh = [status for status in fresh if not _serves_another_run(status.pid)]
        left += [status.pid for status in fresh]
        found += [s for s in fresh if s.state not in "ZX" and s.session not in spared_sessions]
    return found


def _children_of(pid: int) -> list[int] | None:
    """[] for a process that is gone; None where there is no such file."""
    try:
        threads = os.listdir(f"{PROC}/{pid}/task")
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        try:
            with open(f"{PROC}/{pid}/task/{thread}/children", "rb") as file:
                found += [int(word) for word in file.read().split()]
        except OSError:
            if not os.path.exists(f"{PROC}/self/task/{os.getpid()}/children"):
                return None
    return found


def members_of(task_dir: str) -> list[Status]:
    """Living processes that were started inside a task, by their own environment.

    Where the parent is gone, neither a pid nor a group says whose a process is: the numbers may
    have been given anew. Its start tells whether the environment was still that process's; its
    state may change at any moment.
    """
    mark = b"HEADWAY_SPOOL=" + os.fsencode(task_dir)
    alive = [s for s in everybody() if s.state not in "ZX" and s.pid != os.getpid()]
    return [s for s in alive if mark in _environ(s.pid).split(b"\0") and start_of(s.pid) == s.start]


def _serves_another_run(pid: int) -> bool:
    """Whether it is the shipper of a run that a program of this task has made besides: that is a job
    of its own, and has to send the rest.
    """
    return OTHER_RUN_MARK in _environ(pid).split(b"\0")


def _environ(pid: int) -> bytes:
    try:
        with open(f"{PROC}/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:  # somebody else's, or gone
        return b""


def become_subreaper() -> bool:
    """Orphans below us become our children, so that none goes unseen. False where the system has no
    such thing.
    """
    pr_set_child_subreaper = 36
    try:
        import ctypes

        return int(ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)) == 0
    except (ImportError, OSError, AttributeError):
        return False


def give_back_memory() -> None:
    """Hand freed memory to the system; the C library keeps it otherwise after a large burst."""
    try:
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)
    except (ImportError, OSError, AttributeError):
        return


def oom_file() -> str | None:
    """The file in which the kernel counts processes of our cgroup that were killed for want of
    memory.
    """
    try:
        with open(f"{PROC}/self/cgroup") as file:
            rows = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return None
    folders = {row[1]: row[2] for row in rows if len(row) == 3}

    places = []
    # the first version of cgroups; in a container its own group is mounted as the root
    if "memory" in folders:
        places.append(f"/sys/fs/cgroup/memory{folders['memory']}/memory.oom_control")
        places.append("/sys/fs/cgroup/memory/memory.oom_control")
    places.append(f"/sys/fs/cgroup{folders.get('', '')}/memory.events")
    for place in places:
        if os.path.exists(place):
            return place
    return None


def oom_kills(path: str | None) -> int | None:
    """None where it cannot be read."""
    if path is None:
        return None
    try:
        with open(path) as file:
            rows = dict(line.split() for line in file)
        return int(rows["oom_kill"])
    except (OSError, ValueError, KeyError):
        return None


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
