"""What a submission may ask for: every field checked before anything is stored (B24, B25). Called
by `control.py`.

Errors name the field, what was given and what is valid. What only the system can refuse (a folder
that vanishes, a program that is not there) is told when it happens.
"""

import math
import os
import re
import resource
import uuid as uuids
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from headway.code.depot import Depot
from headway.code.manifest import is_digest
from headway.home import remote_server
from headway.model.engine_words import LAUNCHERS, ON_HANG
from headway.model.errors import UsageError
from headway.model.ids import check_name
from headway.model.job import JobSpec, Retry, Role
from headway.model.json_types import JsonMapping, JsonObject
from headway.model.limits import (
    AFTER_MAX,
    ARGV_BYTES_MAX,
    DURATION_S_MAX,
    ENV_BYTES_MAX,
    HOLD_S_MAX,
    NODES_MAX,
    PROCESSES_MAX,
    RETRIES_MAX,
    ROLE_NAME_CHARS_MAX,
    ROLES_MAX,
    TAG_CHARS_MAX,
    TAGS_MAX,
    TASKS_MAX,
)
from headway.model.spread import count_of, spread
from headway.settings import clusters
from headway.settings.nearest import did_you_mean
from headway.settings.quantity import duration_text

STRING_BYTES_MAX = 128 * 1024 - 1  # one argument or variable; Linux: MAX_ARG_STRLEN
PRIORITY_ABS_MAX = 1_000_000
_FIELDS = {f.name for f in fields(JobSpec)}
_ROLE_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*\Z")
_COMPLETIONS = ("all", "any", "none")
_OURS = frozenset(
    {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK"}
)
_RLIMITS = {name.removeprefix("RLIMIT_") for name in dir(resource) if name.startswith("RLIMIT_")}


def job_uuid(value: Any) -> str:
    try:
        return str(uuids.UUID(value))
    except (ValueError, AttributeError, TypeError):
        raise UsageError(f"{value!r:.80} is not a UUID") from None


def job_spec(given: JobSpec | JsonMapping) -> JobSpec:
    """A checked copy of what was asked for."""
    values = asdict(given) if isinstance(given, JobSpec) else dict(given)
    for name in values:
        if name not in _FIELDS:
            raise UsageError(f"unknown field {str(name)[:80]!r}{did_you_mean(str(name), _FIELDS)}")
    if "launcher" not in values and _asks_for_ranks(values):
        values["launcher"] = "ranks"
    missing = [name for name in ("command", "cwd", "name") if name not in values]
    if missing:
        raise UsageError(f"a job needs {' and '.join(missing)}")
    try:
        spec = JobSpec.from_values(values)
    except (TypeError, ValueError) as error:
        raise UsageError(f"roles, folders or retry are not what they should be: {error}") from None
    _check_words(spec)
    _check_numbers(spec)
    _check_roles(spec)
    command(spec.command)
    _check_rlimits(spec.rlimits)
    _check_size(spec)
    _check_life(spec)
    return spec


def _asks_for_ranks(given: JsonMapping) -> bool:
    """Whether somebody named processes, nodes or roles: `-n 1` is asking, the default 1 is not."""
    return bool(given.get("roles")) or any(given.get(name) for name in ("processes", "nodes"))


def launcher_again(old: JobSpec, changes: JsonMapping) -> JsonObject:
    """Of a job that is submitted again: a number of processes or nodes asks for ranks."""
    launcher = changes.get("launcher") or old.launcher
    if launcher is None and (old.ranked or _asks_for_ranks(changes)):
        launcher = "ranks"
    return {"launcher": launcher}


def joined_env(old: JobSpec, changes: JsonMapping) -> JsonObject:
    """Of a job that is submitted again: what was set for the old one is set for it too."""
    return {"env_set": list(dict.fromkeys([*old.env_set, *(changes.get("env_set") or ())]))}


def options_again(old: JobSpec, changes: JsonMapping) -> JsonObject:
    """Options of an engine mean nothing to another one: a job that moves from Slurm to this machine
    leaves them.
    """
    if "definition" not in changes or "options" in changes:
        return {}
    engines = {
        found.get("engine", clusters.LOCAL) for found in (old.definition, changes["definition"])
    }
    return {} if len(engines) == 1 else {"options": {}}


def env_again(old: JobSpec, changes: JsonMapping) -> dict[str, str]:
    """The values that it has again: all that were kept, but for those that are given anew."""
    return {
        name: value
        for name, value in old.env_kept.items()
        if name not in (changes.get("env_set") or ())
    }


def _check_size(spec: JobSpec) -> None:
    """Nodes and processes of them. An engine may have its own `gpu_per_node`, and checks again in
    its plan.
    """
    _whole("nodes", spec.nodes, 1, NODES_MAX)
    if spec.gpu_per_node is not None:
        _whole("gpu_per_node", spec.gpu_per_node, 1, PROCESSES_MAX)
    if not isinstance(spec.multi_process, bool):
        raise UsageError("multi_process is true or false")
    if spec.stdin is not None:
        if not isinstance(spec.stdin, dict):
            raise UsageError("stdin is not an object of pid and start")
        _whole("stdin.pid", spec.stdin.get("pid"), 1, 1 << 31)
        _whole("stdin.start", spec.stdin.get("start"), 0, 1 << 62)
    if spec.launcher not in (None, *LAUNCHERS):
        raise UsageError(
            f"unknown launcher {str(spec.launcher)[:80]!r}", f"one of {', '.join(LAUNCHERS)}"
        )
    if spec.launcher == "mpirun" and spec.roles:
        raise UsageError(
            "launcher mpirun and roles do not go together",
            "leave out one of them; a role's command may call mpirun itself",
        )
    count = count_of(spec.processes, spec.nodes)
    spread(
        count, per_node=spec.gpu_per_node, nodes=spec.nodes, multi_process=spec.multi_process,
        cluster=spec.cluster, one_node=spec.one_node,
    )  # fmt: skip


def _check_life(spec: JobSpec) -> None:
    """Retries, the hold after a failure, and jobs to wait for."""
    _check_retry(spec.retry)
    spec.hold_s = _seconds("hold_s", spec.hold_s)
    if spec.hold_s > HOLD_S_MAX:
        asked, longest = duration_text(spec.hold_s), duration_text(HOLD_S_MAX)
        raise UsageError(
            f"a failed task cannot be held for {asked}", f"{longest} at most: --hold {longest}"
        )
    if spec.on_hang not in ON_HANG:
        raise UsageError(f"on_hang is one of {', '.join(ON_HANG)}")
    if len(_texts("after", spec.after)) > AFTER_MAX:
        raise UsageError(f"after names {len(spec.after)} jobs", f"at most {AFTER_MAX}")


def _check_retry(retry: Retry) -> None:
    _whole("retry.max", retry.max, 0, RETRIES_MAX)
    _whole("retry.total_max", retry.total_max, 0, RETRIES_MAX)
    if retry.on not in ("cause", "any"):
        raise UsageError(f"retry.on is {retry.on!r:.40}", "cause or any")
    retry.backoff_s = _seconds("retry.backoff_s", retry.backoff_s)
    retry.backoff_max_s = _seconds("retry.backoff_max_s", retry.backoff_max_s)


def _check_words(spec: JobSpec) -> None:
    check_name(_text("name", spec.name))
    check_name(_text("cluster", spec.cluster))
    if spec.definition:
        spec.definition = clusters.definition(spec.definition, f"cluster {spec.cluster}")
    if spec.experiment is not None:
        check_name(_text("experiment", spec.experiment))
    for name in ("user", "host"):
        if len(_text(name, getattr(spec, name))) > 255:
            raise UsageError(f"{name} is too long")
    if spec.parent is not None:
        _text("parent", spec.parent)
    for name in ("attached", "pty", "reserved", "one_node"):
        if not isinstance(getattr(spec, name), bool):
            raise UsageError(f"{name} is true or false")
    for name in ("monitor", "guest_of"):
        if getattr(spec, name) is not None:
            _text(name, getattr(spec, name))
    if spec.monitor is not None:
        remote_server.parse(spec.monitor, "monitor")
    tags(spec.tags)
    for name in _texts("env_set", spec.env_set) + _texts("secret_names", spec.secret_names):
        variable(name)
    for name in spec.env_set:
        if name in _OURS and spec.ranked:
            raise UsageError(
                f"{name} cannot be set: with -n, nodes or roles every process gets its own",
                "leave out -n, nodes and roles to set it yourself",
            )


def _check_roles(spec: JobSpec) -> None:
    """Names become names of tasks, folders and variables; numbers are those of one instance."""
    if len(spec.roles) > ROLES_MAX:
        raise UsageError(f"{len(spec.roles)} roles are too many", f"at most {ROLES_MAX}")
    for role in spec.roles:
        name = _text("the name of a role", role.name)
        if not _ROLE_NAME.match(name) or len(name) > ROLE_NAME_CHARS_MAX:
            hint = (
                f"lower-case letters, digits and '-', at most {ROLE_NAME_CHARS_MAX}, such as worker"
            )
            raise UsageError(f"{name[:80]!r} is not the name of a role", hint)
        _check_role(role)
    names = [role.name for role in spec.roles]
    if len(set(names)) != len(names):
        raise UsageError(f"two roles have the name {next(n for n in names if names.count(n) > 1)}")
    if spec.roles and all(role.completion == "none" for role in spec.roles):
        raise UsageError("every role has completion none: the job would wait for nothing")
    if spec.roles and not spec.command:
        spec.command = list(spec.roles[0].command)


def _check_role(role: Role) -> None:
    where = f"roles.{role.name}"
    command(role.command)
    _whole(f"{where}.instances", role.instances, 1, TASKS_MAX)
    _whole(f"{where}.processes", role.processes, 1, PROCESSES_MAX)
    _whole(f"{where}.gpus", role.gpus, 0, 1 << 20)
    for name, most in (("cpus", 1 << 20), ("memory_bytes", 1 << 60)):
        if getattr(role, name) is not None:
            _whole(f"{where}.{name}", getattr(role, name), 1, most)
    if role.completion not in _COMPLETIONS:
        near = did_you_mean(str(role.completion), _COMPLETIONS)
        raise UsageError(
            f"{where}.completion is {role.completion!r:.40}{near}",
            f"one of {', '.join(_COMPLETIONS)}",
        )
    for name in ("min_failed", "min_succeeded"):
        if getattr(role, name) is not None:
            _whole(f"{where}.{name}", getattr(role, name), 1, role.instances)


def tags(value: Any) -> list[str]:
    found = _texts("tags", value)
    if len(found) > TAGS_MAX:
        raise UsageError(f"{len(found)} tags are too many", f"at most {TAGS_MAX}")
    for tag in found:
        if not tag or len(tag) > TAG_CHARS_MAX:
            raise UsageError(
                f"the tag {tag[:80]!r} is not allowed", f"a tag has 1 to {TAG_CHARS_MAX} characters"
            )
    return found


def _check_numbers(spec: JobSpec) -> None:
    _whole("processes", spec.processes, 1, PROCESSES_MAX)
    _whole("gpus", spec.gpus, 0, 1 << 20)
    _whole("priority", spec.priority, -PRIORITY_ABS_MAX, PRIORITY_ABS_MAX)
    _whole("umask", spec.umask, 0, 0o777)
    if spec.cpus is not None:
        _whole("cpus", spec.cpus, 1, 1 << 20)
    if spec.memory_bytes is not None:
        _whole("memory_bytes", spec.memory_bytes, 1, 1 << 60)
    if spec.max_duration_s is not None:
        spec.max_duration_s = _seconds("max_duration_s", spec.max_duration_s)
        if spec.max_duration_s == 0:
            raise UsageError(
                "max_duration_s is 0: a job needs some time", "for example: --max-duration 3.5h"
            )
    spec.grace_s = _seconds("grace_s", spec.grace_s)
    spec.monitoring_interval_s = _seconds("monitoring_interval_s", spec.monitoring_interval_s)


def command(argv: Any) -> list[str]:
    """The words of a command, as execve will get them."""
    words = _texts("command", argv)
    if not words or not words[0]:
        raise UsageError("there is no command to run", "for example: hw run python train.py")
    total = 0
    for word in words:
        if "\0" in word or not _encodes(word):
            raise UsageError(
                f"the argument {word[:80]!r} has a NUL or a lone surrogate in it; no program can get that"
            )
        size = len(os.fsencode(word))
        if size > STRING_BYTES_MAX:
            raise UsageError(
                f"the argument {word[:80]!r}… is too long", f"at most {STRING_BYTES_MAX} bytes"
            )
        total += size + 1
    if total > ARGV_BYTES_MAX:
        raise UsageError(
            f"the command has {total} bytes", f"at most {ARGV_BYTES_MAX}; use a file for long lists"
        )
    return words


def _encodes(word: str) -> bool:
    """Bytes that were not UTF-8 come as lone surrogates and go back; other lone surrogates never
    were bytes (B6).
    """
    try:
        os.fsencode(word)
    except UnicodeEncodeError:
        return False
    return True


def environment(env: Any, spec: JobSpec) -> dict[str, str]:
    """The environment, and that it fits into an execve together with the command."""
    if not isinstance(env, Mapping):
        raise UsageError("the environment is a mapping of names to values")
    total = 0
    for name, value in env.items():
        variable(name)
        if not isinstance(value, str) or "\0" in value or not _encodes(value):
            raise UsageError(f"the value of the variable {name} is not text that a program can get")
        size = len(os.fsencode(name)) + len(os.fsencode(value)) + 2
        if size > STRING_BYTES_MAX:
            raise UsageError(
                f"the variable {name} has {size} bytes",
                f"at most {STRING_BYTES_MAX} each; use a file",
            )
        total += size
    room = min(
        ENV_BYTES_MAX,
        exec_bytes_max(spec) - sum(len(os.fsencode(word)) + 9 for word in spec.command),
    )
    if total + 8 * len(env) > room:
        largest = max(env, key=lambda name: len(env[name]))
        raise UsageError(
            f"the environment has {total} bytes, and {max(room, 0)} fit beside this command (E2BIG)",
            f"the largest variable is {largest} with {len(env[largest])} characters; unset what is not needed",
        )
    return dict(env)


def exec_bytes_max(spec: JobSpec) -> int:
    """What argv and environment may have together: a quarter of the job's stack limit, as Linux has
    it.
    """
    stack = (spec.rlimits.get("STACK") or [-1])[0]
    quarter = stack // 4 if stack > 0 else os.sysconf("SC_ARG_MAX")
    # some room for what the agent adds
    return max(128 * 1024, min(quarter, 6 * 1024 * 1024)) - 8 * 1024


def variable(name: Any) -> str:
    if not isinstance(name, str) or not name or "=" in name or "\0" in name or not _encodes(name):
        raise UsageError(
            f"{name!r:.80} is not the name of an environment variable", "it has no '=' and no NUL"
        )
    return name


def folder(cwd: Any) -> str:
    """The folder that the job starts in: here, now, and again when it starts."""
    path = _text("cwd", cwd)
    if "\0" in path or not os.path.isabs(path):
        raise UsageError(f"the folder {path[:200]!r} is not an absolute path")
    if not os.path.isdir(path):
        raise UsageError(
            f"the folder {path[:200]} does not exist", "submit from a folder that exists"
        )
    return path


def carried(spec: JobSpec, planned: str | None, engine: str) -> None:
    """An engine that would run the job in place, whatever was asked for, is told now."""
    if spec.code != planned:
        raise UsageError(
            f"the engine {engine} cannot run a job from a snapshot yet",
            "submit it without --snapshot",
        )


def code(spec: JobSpec, home: Path) -> None:
    """The snapshot is here, and gc leaves it alone until the job is stored. No path of the caller
    reaches a file.
    """
    if spec.code is None:
        return
    if not is_digest(spec.code):
        raise UsageError(f"code is not the digest of a snapshot: {spec.code!r:.80}")
    inside = _text("code_cwd", spec.code_cwd)
    if inside and ("\0" in inside or any(part in ("", ".", "..") for part in inside.split("/"))):
        raise UsageError(f"code_cwd is not a folder inside the snapshot: {inside[:200]!r}")
    if spec.code_commit is not None and not re.fullmatch(
        r"[0-9a-f]{40,64}\+?", _text("code_commit", spec.code_commit)
    ):
        raise UsageError(f"code_commit is not a commit: {spec.code_commit[:80]!r}")
    if not Depot(home / "code").pin(spec.code):
        raise UsageError(f"the snapshot {spec.code[:12]} is not in this home", "make one: hw init")


def _check_rlimits(limits: Any) -> None:
    if not isinstance(limits, Mapping):
        raise UsageError("rlimits is a mapping of names to [soft, hard]")
    for name, pair in limits.items():
        if name not in _RLIMITS:
            raise UsageError(f"unknown limit {str(name)[:80]!r}{did_you_mean(str(name), _RLIMITS)}")
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise UsageError(f"rlimits.{name} is a pair [soft, hard]")
        for number in pair:
            _whole(f"rlimits.{name}", number, -1, (1 << 64) - 1)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} is not text: {value!r:.80}")
    return value


def _texts(name: str, value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise UsageError(f"{name} is not a list of texts: {value!r:.80}")
    return list(value)


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name} is not a whole number: {value!r:.80}")
    if not least <= value <= most:
        raise UsageError(
            f"{name} is {value if abs(value) < 1 << 64 else 'far too large'}",
            f"valid: {least} to {most}",
        )
    return value


def _seconds(name: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise UsageError(f"{name} is not a number of seconds: {value!r:.80}")
    if not 0 <= value <= DURATION_S_MAX:
        raise UsageError(f"{name} is {value:g} s", f"valid: 0 to {DURATION_S_MAX:g} s")
    return float(value)
