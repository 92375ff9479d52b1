"""What a submission carries: the command, what it needs, and the submitter's folder, environment, umask and limits.

Called by `run`, `submit` and `resubmit`.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headway.model.errors import UnreachableError, UsageError
from headway.model.ids import check_name, name_from_command, new_uuid
from headway.model.limits import ARGV_BYTES_MAX, ENV_BYTES_MAX, TAGS_MAX
from headway.views.cli.dispatch import Call
from headway.views.source import Source, job_route

if TYPE_CHECKING:
    from headway.settings.layers import Settings

_TRIES: Final = 3
_ASKED: Final = ("processes", "cpus", "memory_bytes", "max_duration_s", "monitoring_interval_s", "priority")


def submit(source: Source, call: Call) -> dict[str, Any]:
    """Submit the call's command. The uuid makes it one job, however often it must be sent (P9)."""
    settings = _settings()
    command = checked_command(call.words)
    spec = {
        "command": command,
        "cwd": _folder(),
        "name": call.get("name") or check_name(name_from_command(command)),
        "experiment": call.get("experiment") or settings.get("experiment"),
        "cluster": call.get("cluster") or settings.get("default_cluster"),
        "grace_s": settings.get("grace_s"),
        "monitoring_interval_s": settings.get("monitoring_interval_s"),
        "secret_names": list(settings.get("secret_names") or []),
        **surroundings(),
        **changes(call),
    }
    return _send(source, "/api/jobs", {"uuid": new_uuid(), "spec": spec, "env": environment(call, settings)})


def resubmit(source: Source, call: Call, ref: str) -> dict[str, Any]:
    """Submit a job again with the changes of the call; the old one is left to the caller."""
    spec = {**changes(call), **{key: call.get(key) for key in ("name", "experiment", "cluster") if call.get(key)}}
    if call.after:
        spec["command"] = checked_command(call.after)
    around = surroundings()
    spec |= {"umask": around["umask"], "rlimits": around["rlimits"]}
    body = {"uuid": new_uuid(), "spec": spec, "env": environment(call, _settings())}
    return _send(source, job_route(ref, "resubmit"), body)


def _send(source: Source, route: str, body: dict[str, Any]) -> dict[str, Any]:
    for left in reversed(range(_TRIES)):
        try:
            job: dict[str, Any] = source.post(route, body)
            return job
        except UnreachableError:
            if not left:
                raise
            source.reconnect()
    raise AssertionError("unreachable")


def _settings() -> "Settings":
    from pathlib import Path

    from headway.settings.layers import load

    return load(Path(_folder()))


def changes(call: Call) -> dict[str, Any]:
    """The fields of a JobSpec that were asked for by options."""
    spec = {key: call.get(key) for key in _ASKED if call.get(key) is not None}
    tags = list(dict.fromkeys(call.get("tags", [])))
    if len(tags) > TAGS_MAX:
        raise UsageError(f"--tag: {len(tags)} tags are too many", f"at most {TAGS_MAX}")
    if tags:
        spec["tags"] = tags
    if call.get("env"):
        spec["env_set"] = list(dict.fromkeys(name for name, _ in call.get("env")))
    return spec


def checked_command(words: list[str]) -> list[str]:
    if not words:
        raise UsageError("no command was given", "for example: hw run python train.py")
    size = sum(len(os.fsencode(word)) + 1 for word in words)
    if size > ARGV_BYTES_MAX:
        raise UsageError(
            f"the command has {size} bytes, more than a process can be given ({ARGV_BYTES_MAX})",
            "put the long arguments into a file",
        )
    return list(words)


def environment(call: Call, settings: "Settings") -> dict[str, str]:
    """Secrets of the private file < this environment < `--env`."""
    env = {**settings.secrets(), **inherited(os.environ), **dict(call.get("env", []))}
    size = sum(len(os.fsencode(name)) + len(os.fsencode(value)) + 2 for name, value in env.items())
    if size > ENV_BYTES_MAX:
        largest = max(env, key=lambda name: len(env[name]))
        raise UsageError(
            f"the environment has {size} bytes, more than a process can be given ({ENV_BYTES_MAX})",
            f"the largest variable is {largest[:60]}: unset it, or put its value into a file",
        )
    return env


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment as the shell gave it. Python puts LC_CTYPE into its own when there is no locale (PEP 538)."""
    env = dict(environ)
    if env.get("LC_CTYPE") == "C.UTF-8":
        try:
            with open("/proc/self/environ", "rb") as file:
                given = file.read().split(b"\0")
        except OSError:
            return env
        if not any(item.startswith(b"LC_CTYPE=") for item in given):
            del env["LC_CTYPE"]
    return env


def surroundings() -> dict[str, Any]:
    """What else a local job takes over from the submitter: umask and limits; and who he is."""
    import resource
    import socket

    umask = os.umask(0o077)
    os.umask(umask)
    limits = {
        name.removeprefix("RLIMIT_"): list(resource.getrlimit(getattr(resource, name)))
        for name in dir(resource)
        if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE"  # an older name of NOFILE
    }
    return {"umask": umask, "rlimits": limits, "user": user_name(), "host": socket.gethostname()}


def user_name() -> str:
    """The account's name; the number of one that has none (B33)."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return str(os.getuid())


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise UsageError(f"the current folder is not there: {error.strerror}", "cd to a folder that exists") from None
