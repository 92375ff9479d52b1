"""What a submission may ask for: every field checked before anything is stored (B24, B25). Called
by `control.py`.

Errors name the field, what was given and what is valid. What only the system can refuse (a folder
that vanishes, a program that is not there) is told when it happens.
"""

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
from headway.model.errors import UsageError
from headway.model.job import JobSpec
from headway.model.json_types import JsonMapping, JsonObject
from headway.model.limits import (
    AFTER_MAX,
    ARGV_BYTES_MAX,
    ENV_BYTES_MAX,
    ROLES_MAX,
)
from headway.model.spread import count_of, spread
from headway.settings import clusters, job_fields
from headway.settings.job_fields import tags as tags
from headway.settings.job_fields import whole
from headway.settings.nearest import did_you_mean

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
    _check_role_names(spec)
    _check_fields(spec)
    _check_roles(spec)
    command(spec.command)
    whole("gpus", spec.gpus, 0, 1 << 20)
    whole("umask", spec.umask, 0, 0o777)
    _check_rlimits(spec.rlimits)
    _check_size(spec)
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


def _check_fields(spec: JobSpec) -> None:
    """All that the table of fields knows, of the job, its roles and its retries."""
    for field in job_fields.JOB:
        setattr(spec, field.name, job_fields.check(field, getattr(spec, field.name)))
    for field in job_fields.RETRY:
        value = job_fields.check(field, getattr(spec.retry, field.name), f"retry.{field.name}")
        setattr(spec.retry, field.name, value)
    for role in spec.roles:
        for field in job_fields.ROLE:
            where = f"roles.{role.name}.{field.name}"
            setattr(role, field.name, job_fields.check(field, getattr(role, field.name), where))


def _check_size(spec: JobSpec) -> None:
    """Nodes and processes of them. An engine may have its own `gpu_per_node`, and checks again in
    its plan.
    """
    if spec.stdin is not None:
        if not isinstance(spec.stdin, dict):
            raise UsageError("stdin is not an object of pid and start")
        whole("stdin.pid", spec.stdin.get("pid"), 1, 1 << 31)
        whole("stdin.start", spec.stdin.get("start"), 0, 1 << 62)
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


def _check_words(spec: JobSpec) -> None:
    if spec.definition:
        spec.definition = clusters.definition(spec.definition, f"cluster {spec.cluster}")
    for name in ("user", "host"):
        if len(_text(name, getattr(spec, name))) > 255:
            raise UsageError(f"{name} is too long")
    if spec.parent is not None:
        _text("parent", spec.parent)
    for name in ("attached", "reserved", "one_node"):
        if not isinstance(getattr(spec, name), bool):
            raise UsageError(f"{name} is true or false")
    for name in ("monitor", "guest_of"):
        if getattr(spec, name) is not None:
            _text(name, getattr(spec, name))
    if spec.monitor is not None:
        remote_server.parse(spec.monitor, "monitor")
    if len(_texts("after", spec.after)) > AFTER_MAX:
        raise UsageError(f"after names {len(spec.after)} jobs", f"at most {AFTER_MAX}")
    for name in _texts("env_set", spec.env_set) + _texts("secret_names", spec.secret_names):
        variable(name)
    for name in spec.env_set:
        if name in _OURS and spec.ranked:
            raise UsageError(
                f"{name} cannot be set: with -n, nodes or roles every process gets its own",
                "leave out -n, nodes and roles to set it yourself",
            )


def _check_role_names(spec: JobSpec) -> None:
    if len(spec.roles) > ROLES_MAX:
        raise UsageError(f"{len(spec.roles)} roles are too many", f"at most {ROLES_MAX}")
    for role in spec.roles:
        job_fields.check_role(_text("the name of a role", role.name))
        command(role.command)
    names = [role.name for role in spec.roles]
    if len(set(names)) != len(names):
        raise UsageError(f"two roles have the name {next(n for n in names if names.count(n) > 1)}")


def _check_roles(spec: JobSpec) -> None:
    """What fields of a role mean for each other."""
    for role in spec.roles:
        for name in ("min_failed", "min_succeeded"):
            if (getattr(role, name) or 0) > role.instances:
                raise UsageError(
                    f"roles.{role.name}.{name} is {getattr(role, name)}",
                    f"it has {role.instances} instances",
                )
    if spec.roles and all(role.completion == "none" for role in spec.roles):
        raise UsageError("every role has completion none: the job would wait for nothing")
    if spec.roles and not spec.command:
        spec.command = list(spec.roles[0].command)


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
            whole(f"rlimits.{name}", number, -1, (1 << 64) - 1)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} is not text: {value!r:.80}")
    return value


def _texts(name: str, value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise UsageError(f"{name} is not a list of texts: {value!r:.80}")
    return list(value)
