"""Starting one rank: its environment, its descriptors, fork and exec. Called by the shim.

Output goes straight to spool files, never through a pipe of ours, so a rank does not notice whether
we live. A start that fails is told through a pipe that exec closes; the reason is also put into the
rank's own stderr.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import sys

from headway.agent.shim.rank_env import (
    kept,
    merge,
    mpirun_variables,
    slurm_variables,
    world_variables,
)
from headway.model.errors import HeadwayError
from headway.model.limits import ENV_BYTES_MAX
from headway.model.value import Value
from headway.spool.files import OS_FILES, Files
from headway.spool.layout import open_output
from headway.spool.reader import open_stream, read_exactly
from headway.wire import sealed_json
from headway.wire.identity import process_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from headway.model.json_types import JsonMapping
    from headway.spool.layout import TaskFile

NOT_FOUND, CANNOT_RUN = 127, 126
_ENV_FILE_BYTES_MAX = 8 * ENV_BYTES_MAX  # as JSON a byte may take six
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # …/headway
BOOTSTRAP = os.path.join(_PACKAGE, "client", "bootstrap")
# the zip application: `import headway` finds it there
if os.path.isfile(os.path.dirname(_PACKAGE)):
    BOOTSTRAP += os.pathsep + os.path.dirname(_PACKAGE)


class Start(Value):
    """A rank on its way: the pipe ends empty when the program runs, and holds a message when it
    cannot.
    """

    index: int
    pid: int
    pipe: int
    copier: int | None = None  # pid of the process that copies what its terminals show
    copier_pipe: int = -1  # holds at its end how many bytes could not be written
    # (stream, why): output that has no file of its own, or none at all
    lost: "tuple[tuple[str, str], ...]" = ()


def read_environment(task_dir: str, files: Files = OS_FILES) -> dict[str, str]:
    """`env.json`. Raises OSError or DamagedError."""
    fd = open_stream(os.path.join(task_dir, "env.json"), files)
    try:
        env = sealed_json.decode(read_exactly(files, fd, 0, _ENV_FILE_BYTES_MAX), "env.json")
    finally:
        files.close(fd)
    return {str(name): str(value) for name, value in env.items()}


def environment(
    task: "TaskFile",
    env: "Mapping[str, str]",
    index: int,
    task_dir: str,
    peers: "Sequence[JsonMapping]" = (),
) -> dict[str, str]:
    """What a rank finds in its environment; `docs/concepts/protocol.md` has the list."""
    path = env.get("PYTHONPATH")
    out = {
        "HEADWAY_HOME": task.home, "HEADWAY_JOB": task.id, "HEADWAY_UUID": task.uuid,
        "HEADWAY_ATTEMPT": str(task.attempt), "HEADWAY_TASK": task.task, "HEADWAY_SPOOL": task_dir,
        "HEADWAY_OUTPUT_DIR": task.output_dir, "HEADWAY_PACKAGE": os.path.dirname(_PACKAGE),
        "PYTHONPATH": f"{BOOTSTRAP}{os.pathsep}{path}" if path else BOOTSTRAP,
        **world_variables(task, index, peers),
    }  # fmt: skip
    if task.folders:
        from headway.agent.shim.folders import variables

        out |= variables(task_dir)
    given = kept(task, os.environ)
    gpus: list[Any] | None = task.gpus
    if "CUDA_VISIBLE_DEVICES" in given:
        gpus = given["CUDA_VISIBLE_DEVICES"].split(",")
    if gpus is not None:
        mine = [gpus[index]] if len(gpus) == task.processes else gpus
        out["CUDA_VISIBLE_DEVICES"] = ",".join(str(gpu) for gpu in mine)
    if "SLURM_JOB_ID" in given and task.ranked:
        given |= slurm_variables(task, index)
    if task.keep_env:
        env = {
            name: value for name, value in env.items() if not name.startswith(("SLURM_", "SLURMD_"))
        }
    if task.pty and not env.get("TERM"):
        out["TERM"] = "xterm-256color"
    if task.argv and task.argv[0] == "mpirun" and not task.ranked:
        out |= mpirun_variables(env)
    return merge(env, given | out, task.env_set, task.ranked)


def start_rank(
    task: "TaskFile",
    env: "Mapping[str, str]",
    index: int,
    task_dir: str,
    peers: "Sequence[JsonMapping]" = (),
) -> Start:
    """Raises OSError when there can be no more processes, or terminals."""
    if not task.pty:
        outputs, lost = _open_outputs(task_dir, task.first_rank + index)
        try:
            start = _spawn(task, env, index, task_dir, peers, outputs) or _fork(
                task, env, index, task_dir, peers, outputs
            )
        finally:
            for fd in set(outputs):
                os.close(fd)
        return Start(start.index, start.pid, start.pipe, lost=lost) if lost else start
    from headway.agent.shim import pty

    terminals = pty.open_terminals()
    try:
        copier, copier_pipe = pty.start_copier(terminals, task_dir, task.first_rank + index)
        start = _fork(task, env, index, task_dir, peers, terminals.far)
    finally:
        terminals.close()  # the copier ends by itself where there is no rank
    return Start(index, start.pid, start.pipe, copier, copier_pipe)


def _spawn(
    task: "TaskFile",
    env: "Mapping[str, str]",
    index: int,
    task_dir: str,
    peers: "Sequence[JsonMapping]",
    outputs: "Sequence[int]",
) -> Start | None:
    """Start it without a copy of our memory, which costs more than a short program itself. None
    where something has to be done between fork and exec, or where it did not start: then `_fork`
    does it, and says why.
    """
    # not warm: loading it costs more than the copy of a small process
    if "subprocess" not in sys.modules:
        return None
    import resource
    import subprocess

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    asked = _lacking(task.rlimits)
    # a server has more for itself; this one alone is lowered and raised again
    files = asked.pop("NOFILE", before)
    if task.code is not None or asked or files[1] != before[1] or _ignores():
        return None
    null = _open_input(task, index)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
        child = subprocess.Popen(
            [str(word) for word in task.argv], stdin=null, stdout=outputs[0], stderr=outputs[1], cwd=task.cwd,
            env=environment(task, env, index, task_dir, peers), start_new_session=True, umask=task.umask,
        )  # fmt: skip
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        os.close(null)
    child.returncode = 0  # the shim itself waits for it
    return Start(index, child.pid, _ended_pipe())


def _ended_pipe() -> int:
    near, far = os.pipe()
    os.close(far)
    return near


def _ignores() -> bool:
    """Whether a program would inherit signals that are ignored or blocked; what has a handler here
    is reset by exec.
    """
    reset = (signal.SIGPIPE, signal.SIGXFSZ)  # by `subprocess`
    ignored = [
        s
        for s in signal.valid_signals()
        if s not in reset and signal.getsignal(s) == signal.SIG_IGN
    ]
    return bool(ignored or signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def _lacking(limits: "JsonMapping") -> "dict[str, tuple[int, int]]":
    """Those that are not as they are asked for."""
    import resource

    known = (
        (name, getattr(resource, f"RLIMIT_{name}", None), pair) for name, pair in limits.items()
    )
    wanted = {name: (number, _pair(pair)) for name, number, pair in known if number is not None}
    return {
        name: pair for name, (number, pair) in wanted.items() if resource.getrlimit(number) != pair
    }


def _pair(values: "Sequence[Any]") -> tuple[int, int]:
    """Soft and hard; a negative number means none."""
    soft, hard = (-1 if int(value) < 0 else int(value) for value in values)
    return soft, hard


def _fork(
    task: "TaskFile",
    env: "Mapping[str, str]",
    index: int,
    task_dir: str,
    peers: "Sequence[JsonMapping]",
    outputs: "Sequence[int]",
) -> Start:
    near, far = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(near)
        os.close(far)
        raise
    if pid == 0:
        _child(task, env, index, task_dir, far, peers, outputs)
    os.close(far)
    os.set_blocking(near, False)
    return Start(index, pid, near)


def _child(
    task: "TaskFile",
    env: "Mapping[str, str]",
    index: int,
    task_dir: str,
    pipe: int,
    peers: "Sequence[JsonMapping]",
    outputs: "Sequence[int]",
) -> None:
    """Becomes the program; never returns."""
    code, message = CANNOT_RUN, "it could not be started"
    try:
        os.setsid()
        _reset_signals()
        _redirect(outputs, _open_input(task, index))
        os.umask(task.umask)
        code, message = _exec(task, environment(task, env, index, task_dir, peers))
    except BaseException as error:  # a forked child must end here, whatever happens
        message = f"it could not be started: {error}"
    finally:
        text = message.encode(errors="replace")
        for fd, data in (
            (2, b"headway: " + text + b"\n"),
            (pipe, b"%d %s" % (code, text[:60_000])),
        ):
            try:
                os.write(fd, data)
            except OSError:
                continue  # a full disk; the other way may work
        os._exit(code)


def _reset_signals() -> None:
    for signum in signal.valid_signals():
        if signum not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(signum, signal.SIG_DFL)
            except (OSError, ValueError):
                continue  # the C library keeps some for itself
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _open_input(task: "TaskFile", index: int) -> int:
    """Empty, but for rank 0 of a `hw run` that has a pipe or a file on its own stdin: the same."""
    if task.stdin is not None and task.first_rank + index == 0:
        pid = task.stdin.get("pid")
        if process_start(pid or 0) == task.stdin.get("start"):
            try:
                fd = os.open(f"/proc/{pid}/fd/0", os.O_RDONLY)
                _go_on_at(fd, f"/proc/{pid}/fdinfo/0")
                return fd
            except OSError:
                pass  # it has gone away; the program reads an empty file in place of it
    return os.open(os.devnull, os.O_RDONLY)


def _go_on_at(fd: int, info: str) -> None:
    """A file that was opened anew begins at its beginning, and the person's may be further on."""
    with open(info) as file:
        position = file.readline().split()
    if len(position) == 2 and position[0] == "pos:" and position[1] != "0":
        os.lseek(fd, int(position[1]), os.SEEK_SET)


def _redirect(outputs: "Sequence[int]", null: int) -> None:
    """stdin is empty or passed on; stdout and stderr are files, or terminals."""
    # copied out of the way first: one of them may be 0, 1 or 2 itself
    fds = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (null, *outputs)]
    for target, fd in enumerate(fds):
        os.dup2(fd, target)


def _open_outputs(task_dir: str, rank: int) -> "tuple[list[int], tuple[tuple[str, str], ...]]":
    """For stdout and stderr, and what of them has no file: that is told as a gap (P5). A full disk
    must not keep the program from running (F7); where there is a file for one of the two, the other
    goes there as well, so that nothing is lost.
    """
    fds: dict[str, int] = {}
    failed: dict[str, str] = {}
    for role in ("stdout", "stderr"):
        try:
            fds[role] = open_output(task_dir, role, rank)
        except OSError as error:
            failed[role] = error.strerror or str(error)
    if not failed:
        return list(fds.values()), ()
    if fds:
        (there,) = fds
        fd = fds[there]
        lost = tuple(
            (f"{role}-{rank}", f"it has no file ({why}), and is in {there}-{rank}")
            for role, why in failed.items()
        )
    else:
        fd = os.open(os.devnull, os.O_WRONLY)
        lost = tuple(
            (f"{role}-{rank}", f"all of it: no file could be made ({why})")
            for role, why in failed.items()
        )
    return [fd, fd], lost


def _exec(task: "TaskFile", env: dict[str, str]) -> tuple[int, str]:
    """Returns only when it fails: exit code and reason."""
    argv, cwd = [str(word) for word in task.argv], task.cwd
    try:
        cwd = working_folder(task)
        os.chdir(cwd)
    except HeadwayError as error:
        return CANNOT_RUN, f"its code cannot be laid out: {error.message}"
    except OSError as error:
        return CANNOT_RUN, f"the working folder {cwd} cannot be entered: {error.strerror}"
    _limit(task.rlimits)
    if not argv or not argv[0]:
        return CANNOT_RUN, "the command is empty"
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606  (no shell is what we want)
    except (OSError, ValueError) as error:
        return explain(error, argv, env)


def working_folder(task: "TaskFile") -> str:
    """Where it runs: in its folder, or in a checkout of its snapshot, which is made when its first
    rank starts.
    """
    if task.code is None:
        return task.cwd
    from headway.code import checkout

    return os.path.join(checkout.prepare(task.home, task.code, task.uuid), task.code_cwd)


def _limit(limits: "JsonMapping") -> None:
    """The submitter's limits, as far as this system allows: a hard limit cannot be raised."""
    import resource

    for name, (soft, hard) in _lacking(limits).items():
        number = getattr(resource, f"RLIMIT_{name}")
        try:
            resource.setrlimit(number, (soft, hard))
        except (OSError, ValueError):
            try:
                resource.setrlimit(number, (soft, resource.getrlimit(number)[1]))
            except (OSError, ValueError):
                continue


def explain(
    error: OSError | ValueError, argv: list[str], env: "Mapping[str, str]"
) -> tuple[int, str]:
    """Exit code and words for a command that the system does not take (B24)."""
    if isinstance(error, ValueError):
        where = "an argument" if any("\0" in word for word in argv) else "the environment"
        what = "a NUL character" if "null" in str(error) else str(error)
        return CANNOT_RUN, f"the command cannot be started: {where} contains {what}"
    number, name = error.errno, argv[0]
    if number == errno.ENOENT and "/" not in name:
        return NOT_FOUND, f"the command {name} was not found in PATH"
    if number == errno.ENOENT:
        there = os.path.lexists(name)
        hint = "the interpreter that its first line names, or the file that it links to, does not exist"
        return (
            CANNOT_RUN if there else NOT_FOUND
        ), f"the command {name} does not run: {hint if there else 'no such file'}"
    if number == errno.E2BIG:
        size = sum(len(os.fsencode(w)) + 1 for w in argv) + sum(
            len(k) + len(os.fsencode(v)) + 2 for k, v in env.items()
        )
        return (
            CANNOT_RUN,
            f"arguments and environment are too large for this system: {size} bytes together",
        )
    reasons = {
        errno.EACCES: "it is not executable, or may not be read (chmod +x?)",
        errno.ENOEXEC: "it is no program for this machine; a script needs a first line such as #!/bin/sh",
        errno.ENOTDIR: "a part of its path is not a folder",
        errno.ENOMEM: "there is not enough memory",
    }
    return (
        CANNOT_RUN,
        f"the command {name} does not run: {reasons.get(number or 0, error.strerror)}",
    )
