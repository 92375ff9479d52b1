"""Entry point of the agent: `shim`, `shipper`, `shell`, `warm` or `relay`; `home/launch.py` has
the argv.

    shim TASK_DIR               starts the task's processes and forks its shipper; once per task
    shipper TASK_DIR [--adopt]  adopts a task that has no shim: one whose shim was killed, or an attached one
    shell TASK_DIR [--rank=N]   a shell with a task's environment, for a person
    warm HOME                   forks a shim for each task that the engine names on its standard input
    relay FOLDER --home=ID      the server's hands on a login node, over ssh

Exit codes: 0 done · 1 cannot · 2 wrong usage · 3 another agent has this task, or it was started
before · 4 gave up for now, the spool stays · 5 somebody on another machine speaks for this task
now.
"""

from __future__ import annotations

import os
import sys

from headway.model.limits import STREAMS_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from headway.agent.link import ShimLink
    from headway.spool.layout import TaskFile

USAGE = (
    "usage: shim TASK_DIR | shipper TASK_DIR [--adopt] | shell TASK_DIR [--rank=N] | warm HOME | "
    "relay FOLDER --home=ID\n"
)


def main() -> None:
    _open_stdio()
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    if len(words) != 2 or words[0] not in ("shim", "shipper", "shell", "warm", "relay"):
        sys.stderr.write(USAGE)
        sys.exit(2)
    task_dir = os.path.abspath(words[1])
    if words[0] == "shell":
        from headway.agent.shell import run_shell

        ranks = [
            word.removeprefix("--rank=") for word in sys.argv[1:] if word.startswith("--rank=")
        ]
        code = run_shell(task_dir, int(ranks[0]) if ranks and ranks[0].isdigit() else None)
    elif words[0] == "shim":
        from headway.agent.shim.shim import Shim

        code = Shim(task_dir).run()
    elif words[0] == "warm":
        from headway.agent.shim.zygote import Warm

        code = Warm(0).run()
    elif words[0] == "relay":
        from headway.agent.relay import Relay

        homes = [
            word.removeprefix("--home=") for word in sys.argv[1:] if word.startswith("--home=")
        ]
        code = Relay(task_dir, homes[0] if homes else "").run()
    else:
        code = _adopt(task_dir)
    # nothing is buffered; the interpreter's own leaving takes longer than it is worth
    os._exit(code)


def _open_stdio() -> None:
    """Started with closed descriptors, the files of the spool would become our standard output."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one


def _adopt(task_dir: str) -> int:
    import signal

    os.umask(0o077)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        return run_shipper(task_dir, None, None)
    except Exception as error:  # the log is where a person looks; the engine sees the code
        from headway.agent.agent_log import AgentLog

        AgentLog(task_dir, "shipper").say(f"the shipper failed: {type(error).__name__}: {error}")
        return 1


def run_shipper(task_dir: str, link: "ShimLink | None", env: "Mapping[str, str] | None") -> int:
    """Ship a task. Without `link` nobody started its processes who still lives."""
    from headway.agent.process import name_process
    from headway.agent.ship import shipper, takeover
    from headway.agent.task_locks import take_lock
    from headway.spool.layout import TaskFile

    name_process("hw-shipper")
    lock = take_lock(os.path.join(task_dir, "shipper.lock"))
    if lock is None:
        return shipper.EXIT_LOCKED
    task = TaskFile.load(task_dir)
    if link is None and not task.attached:
        guard = take_lock(os.path.join(task_dir, "shim.lock"))
        if guard is None or not os.path.exists(os.path.join(task_dir, "shim.json")):
            return shipper.EXIT_LOCKED  # the shim lives and has its own shipper, or was never there
        os.close(guard)
        if not takeover.take(task_dir):
            return shipper.EXIT_LOCKED  # it lives on another machine
    _raise_descriptor_limit(task.processes)
    return shipper.Shipper(task_dir, task, link, env).run()


def ship_here(task_dir: str, task: "TaskFile", env: "Mapping[str, str]", limit_s: float) -> int:
    """Ship a task that is over, in the process that ran it; not longer than `limit_s`."""
    from headway.agent.process import name_process
    from headway.agent.ship import shipper
    from headway.agent.task_locks import take_lock

    lock = take_lock(os.path.join(task_dir, "shipper.lock"))
    if lock is None:
        return shipper.EXIT_LOCKED
    try:
        name_process("hw-shipper")
        return shipper.Shipper(task_dir, task, None, env, over=True).run(limit_s)
    finally:
        os.close(lock)


def _raise_descriptor_limit(processes: int) -> None:
    """Each rank has about ten streams, all of which stay open."""
    if processes <= 16:
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        try:
            resource.setrlimit(
                resource.RLIMIT_NOFILE,
                (min(hard, STREAMS_MAX * 2) if hard > 0 else STREAMS_MAX * 2, hard),
            )
        except (OSError, ValueError):
            return  # with fewer, streams are opened as others are closed
