"""What a submission carries: the command, what it needs, and the submitter's folder, environment,
umask and limits.

Called by `run`, `submit` and `resubmit`. `wanted` reads a command line or a job file; options stand
above the file.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headway.model.errors import NotFoundError, UsageError
from headway.model.ids import check_name, name_from_command, new_uuid
from headway.model.json_types import JsonMapping, JsonObject
from headway.model.limits import (
    ARGV_BYTES_MAX,
    ENV_BYTES_MAX,
    RESERVE_MARGIN_S,
    RESERVE_S,
    TAGS_MAX,
)
from headway.settings import job_defaults, job_fields
from headway.settings.layers import BUILT_IN
from headway.views.api.source import Source, array_route, job_route
from headway.views.cli import choose_cluster
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt

if TYPE_CHECKING:
    from pathlib import Path

    from headway.settings.layers import Settings

RESERVE: Final = "ssh"
_JOB_FILES: Final = (".yaml", ".yml")
# fields that an option gives as they are; the others join what the job has already, or its settings
_JOINED: Final = ("name", "experiment", "cluster", "tags")


@dataclass(slots=True)
class Wanted:
    """A submission before it is sent. `jobs`: of an array, each `{index, spec, env}`; empty: one
    job.
    """

    spec: JsonObject
    env: dict[str, str] = field(repr=False)
    jobs: list[JsonObject] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    gpus: int = 0  # that a job file asks for by this name


def submit(source: Source, call: Call, *, attend: bool = False) -> JsonObject:
    """Submit what the call names; an array as one. The uuid makes it one, however often it must be
    sent (P9).

    `attend`: somebody follows it, so a command that cannot be started is told by its exit, as a
    shell does.
    """
    asked = wanted(source, call)
    if call.command.name == "run":
        _pass_stdin(asked)
    for warning in asked.warnings:
        call.terminal.say(f"hw: {call.terminal.err.safe(warning)}")
    body = {"uuid": new_uuid(), "spec": asked.spec, "env": asked.env}
    if asked.jobs:
        if attend:
            raise UsageError(
                f"an array of {len(asked.jobs)} jobs cannot be followed",
                "hw submit --wait … waits for all",
            )
        return _send(source, "/api/arrays", {**body, "jobs": asked.jobs, "find_program": True})
    # a typo makes no job that failed, whoever waits for it
    job = _send(source, "/api/jobs", {**body, "find_program": True})
    if asked.gpus and not job.get("gpus"):
        call.terminal.say(
            f"hw: {call.terminal.err.safe(str(job['cluster']))} has no GPUs: "
            f"gpus: {asked.gpus} means {fmt.plural(asked.gpus, 'process')} there"
        )
    return job


def _pass_stdin(asked: Wanted) -> None:
    """What is piped into `hw run`, or a file on its stdin, is the program's. The agent opens this
    process's own descriptor, so that nothing is copied, and nothing is read that the program does
    not read.
    """
    import stat

    try:
        mode = os.fstat(0).st_mode
    except OSError:  # it is closed
        return
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
        return
    if asked.spec.get("definition"):
        if stat.S_ISREG(mode):
            asked.warnings.append("what is on stdin stays here: this job runs on another cluster")
        return
    from headway.wire.identity import process_start

    start = process_start()
    if start is not None:
        asked.spec["stdin"] = {"pid": os.getpid(), "start": start}


def send(source: Source, spec: JsonMapping, env: Mapping[str, str]) -> JsonObject:
    """A job that is prepared already, which somebody follows."""
    return _send(
        source,
        "/api/jobs",
        {"uuid": new_uuid(), "spec": dict(spec), "env": dict(env), "find_program": False},
    )


def resubmit(
    source: Source,
    call: Call,
    old: JsonMapping,
    *,
    moved: bool = True,
    cwd: str | None = None,
) -> JsonObject:
    """Submit a job again with the changes of the call; the old one is left to the caller. Without
    `moved` it stays in its experiment and on its cluster: there these options chose the jobs.
    `cwd`: it runs in another folder than the old one.
    """
    names = ("name", "experiment") if moved else ("name",)
    spec = {**changes(call), **{key: call.get(key) for key in names if call.get(key)}}
    spec |= _monitor(call.get("monitor"))
    if cwd is not None:
        spec["cwd"] = cwd
    if call.after:
        spec["command"] = _new_command(call.after, old)
    around = surroundings()
    spec |= {"umask": around["umask"], "rlimits": around["rlimits"]}
    settings = _settings()
    if call.get("cluster") and moved:
        spec |= choose_cluster.choose(
            source, call, settings, call.get("cluster"), {**_needs(old), **spec}
        )
    definition = _definition(spec, old)
    _pin_again(call, settings, spec, old)
    env = {**environment(call, settings, definition), **_keys_again(settings, old)}
    return _send(
        source, job_route(old["id"], "resubmit"), {"uuid": new_uuid(), "spec": spec, "env": env}
    )


def _definition(spec: JsonMapping, old: JsonMapping) -> JsonObject:
    """The cluster as the new job has it, else as the old one had it."""
    found: JsonObject | None = spec["definition"] if "definition" in spec else old.get("definition")
    return found or {}


def _keys_again(settings: "Settings", old: JsonMapping) -> dict[str, str]:
    """The keys of its folders, which are not kept after a job's end."""
    if not old.get("folders"):
        return {}
    from headway.views.cli import folders

    return folders.keys(settings, os.environ, old["folders"])


def _pin_again(call: Call, settings: "Settings", spec: JsonObject, old: JsonMapping) -> None:
    """A snapshot of the old folder as it is now: where it is asked for, or where the job goes needs
    one and it has none.
    """
    definition = _definition(spec, old)
    if call.get("snapshot") or (definition.get("engine") == "slurm" and not old.get("code")):
        from headway.views.cli import init

        spec |= init.pin(call.terminal, settings, old["cwd"], {}, _brought(old))


def _new_command(words: list[str], old: JsonMapping) -> list[str]:
    """It takes the place of the old one, whole: an argument alone is no command."""
    if words[0].startswith("-"):
        import shlex

        whole = shlex.join([*old["command"], *words])
        raise UsageError(
            f"{words[0]!r:.60} is no command",
            f"give the whole one: hw resubmit {old['id']} -- {whole}",
        )
    return checked_command(words)


def _needs(job: JsonMapping) -> JsonObject:
    """What a job asks for, from its object: enough to see where another one like it would fit."""
    return {key: job[key] for key in ("processes", "cwd", "command") if job.get(key)}


def _monitor(address: str | None) -> JsonObject:
    """The monitor that shall show the job too; refused at once when this home could not send
    anything to it.
    """
    if address is None:
        return {}
    from headway.home import remote_server
    from headway.home.paths import home

    return {
        "monitor": str(
            remote_server.way_to(
                home(), remote_server.parse(address, "--monitor"), "ingest"
            ).address
        )
    }


def resubmit_array(source: Source, call: Call, ref: str, states: list[str]) -> JsonObject:
    """Submit the jobs of an array again, or those in some states, with the changes of the call."""
    spec = {
        **changes(call),
        **{key: call.get(key) for key in ("name", "experiment") if call.get(key)},
    }
    settings = _settings()
    some = source.get("/api/jobs", [("array", ref), ("limit", 1)])
    if not some:
        raise NotFoundError(
            f"all jobs of the array {ref} have been deleted", "hw ls shows the jobs"
        )
    old = source.get(job_route(some[0]["id"]))
    if call.get("cluster"):
        spec |= choose_cluster.choose(
            source, call, settings, call.get("cluster"), {**_needs(old), **spec}
        )
    _pin_again(call, settings, spec, old)
    env = environment(call, settings, spec.get("definition", old.get("definition") or {}))
    env |= _keys_again(settings, old)
    body = {"uuid": new_uuid(), "spec": spec, "env": env, "states": states}
    return _send(source, array_route(ref, "resubmit"), body)


def _send(source: Source, route: str, body: JsonObject) -> JsonObject:
    """The same uuid is the same job, however often it is sent."""
    job: JsonObject = source.post(route, body, again=True)
    return job


def wanted(source: Source, call: Call) -> Wanted:
    """What a command line or a job file asks for, complete."""
    file = job_file(call.words)
    if file is not None:
        return _from_file(source, call, file)
    _check_alone(call)
    for key, name in (("sets", "--set"), ("smoke", "--smoke")):
        if call.get(key):
            raise UsageError(
                f"{name} is for a job file",
                f"for example: hw {call.command.name} {name} … job.yaml",
            )
    settings = _settings()
    reserved = is_reservation(call)
    command = [RESERVE] if reserved else checked_command(call.words)
    below = job_defaults.job_spec(settings.get("defaults"))
    spec = {
        **below,
        "command": command,
        "cwd": _folder(),
        **_common(call, settings, below),
        **changes(call, below),
    }
    spec.setdefault("name", check_name(name_from_command(command)))
    spec |= choose_cluster.choose(source, call, settings, spec["cluster"], spec)
    env = environment(call, settings, spec["definition"], settings.get("defaults").get("env"))
    warnings: list[str] = []
    if reserved:
        spec |= _reservation(spec)
    else:
        warnings = _carry(call, settings, _folder(), spec, env, [])
        _pin(call, settings, spec, None)
    return Wanted(
        spec,
        env,
        _numbered(call, command),
        [*choose_cluster.unused_image(call, spec), *warnings, *_mpi(spec, env)],
    )


def _mpi(spec: JsonMapping, env: Mapping[str, str]) -> list[str]:
    if (spec.get("processes") or 1) == 1:
        return []
    from headway.views.cli import mpi_program

    return mpi_program.warn(spec, env)


def _carry(
    call: Call,
    settings: "Settings",
    near: str,
    spec: JsonObject,
    env: dict[str, str],
    jobs: list[JsonObject],
) -> list[str]:
    """Its folders with their accounts, and the keys into its environment. `near`: where its project
    is looked for.
    """
    own = [one for one in (spec, *(job["spec"] for job in jobs)) if one.get("folders")]
    if not own and not settings.get("folders"):
        return []
    from pathlib import Path

    from headway.settings.project import project_file
    from headway.views.cli import folders

    project = project_file(Path(near))
    for one in own if spec in own else [spec, *own]:
        one["folders"] = folders.settled(settings, project, one.get("folders") or [])
    every = [folder for one in (spec, *own) for folder in one["folders"]]
    env |= folders.keys(settings, {**os.environ, **env}, every)
    return folders.look(every, env)


def is_reservation(call: Call) -> bool:
    """`hw submit ssh`: only as the sole word, so that a command line of ssh stays one."""
    return call.command.name == "submit" and call.words == [RESERVE]


def _reservation(spec: JsonMapping) -> JsonObject:
    """A job that holds its nodes for a shell: one process on each, which ends well when its time is
    over.
    """
    held_s = spec.get("max_duration_s") or RESERVE_S
    longest_s = held_s + RESERVE_MARGIN_S  # its own end comes first
    return {
        "command": ["sleep", f"{held_s:g}"], "max_duration_s": longest_s, "reserved": True, "multi_process": False,
    }  # fmt: skip


def _from_file(source: Source, call: Call, path: "Path") -> Wanted:
    from headway.settings import jobfile, named_secrets
    from headway.settings.layers import load

    file = jobfile.load(path)
    found = jobfile.prepare(
        file, call.get("sets", []), smoke=bool(call.get("smoke")), array=call.get("array")
    )
    settings = load(path.parent.absolute())
    defaults = settings.get("defaults")
    below = job_defaults.job_spec(defaults)
    given = {**below, **found.spec}
    given["env_set"] = list(dict.fromkeys([*below.get("env_set", ()), *found.spec["env_set"]]))
    spec = {**given, **_common(call, settings, given), **changes(call, given)}
    spec.setdefault("name", check_name(name_from_command(spec["command"])))
    if spec.get("after"):
        spec["after"] = [source.get(job_route(ref))["uuid"] for ref in spec["after"]]
    secrets = named_secrets.find(
        found.secrets, {**os.environ, **dict(call.get("env", []))}, settings.secrets()
    )
    spec["secret_names"] = list(dict.fromkeys([*spec["secret_names"], *secrets]))
    spec |= choose_cluster.choose(source, call, settings, spec["cluster"], spec)
    own = {**defaults.get("env", {}), **found.env, **secrets}
    env = environment(call, settings, spec["definition"], own)
    typed = dict(call.get("env", []))
    jobs = [
        {
            "index": e.index,
            "spec": _named(call, e.spec),
            "env": {k: v for k, v in e.env.items() if k not in typed},
        }
        for e in found.elements
    ]
    warnings = _carry(call, settings, str(path.parent.absolute()), spec, env, jobs)
    _pin(call, settings, spec, found.code)
    return Wanted(
        spec,
        env,
        jobs,
        [
            *choose_cluster.unused_image(call, spec),
            *_short_secrets(secrets),
            *warnings,
            *_mpi(spec, env),
        ],
        0 if call.get("processes") else int(file.values.get("gpus") or 0),
    )


def _pin(
    call: Call, settings: "Settings", spec: JsonObject, code: Mapping[str, list[str]] | None
) -> None:
    """`--snapshot`, and always on other machines: the job runs from the code as it is now. `code`:
    patterns of the job file.
    """
    from headway.settings.clusters import takes_snapshot

    is_pinned = bool(settings.get("code.pin")) and takes_snapshot(spec["definition"])
    if call.get("snapshot") or is_pinned or spec["definition"].get("engine") == "slurm":
        from headway.views.cli import init

        spec |= init.pin(call.terminal, settings, spec["cwd"], code or {}, _brought(spec))


def _brought(job: JsonMapping) -> list[str]:
    """Its folders are no code."""
    return [os.path.join(job["cwd"], folder["name"]) for folder in job.get("folders") or []]


def _named(call: Call, spec: JsonObject) -> JsonObject:
    """An option stands above what the file says of each job."""
    return {
        key: value
        for key, value in spec.items()
        if key not in ("name", "experiment") or call.get(key) is None
    }


def _short_secrets(secrets: Mapping[str, str]) -> list[str]:
    from headway.model.limits import SECRET_BYTES_MIN

    short = [
        name
        for name, value in secrets.items()
        if len(value.encode(errors="replace")) < SECRET_BYTES_MIN
    ]
    return [
        f"the secret {name} is shorter than {SECRET_BYTES_MIN} characters and cannot be masked"
        for name in short
    ]


def _common(call: Call, settings: "Settings", given: JsonMapping) -> JsonObject:
    """Fields that every submission has: option, else the file's, else the setting."""
    found = {
        "experiment": call.get("experiment")
        or given.get("experiment")
        or settings.get("experiment"),
        "cluster": call.get("cluster") or given.get("cluster") or settings.get("default_cluster"),
        "grace_s": given.get("grace_s", settings.get("grace_s")),
        "monitoring_interval_s": given.get(
            "monitoring_interval_s", settings.get("monitoring_interval_s")
        ),
        "secret_names": list(settings.get("secret_names") or []),
        **_monitor(call.get("monitor") or settings.get("monitor")),
        **surroundings(),
    }
    return found | ({"name": call.get("name")} if call.get("name") else {})


def job_file(words: list[str]) -> "Path | None":
    """The job file that a sole word names, or the project's where no word is given and it has a
    job.
    """
    from pathlib import Path

    if len(words) == 1 and words[0].endswith(_JOB_FILES) and os.path.exists(words[0]):
        return Path(words[0])
    if words:
        return None
    from headway.settings.project import project_file

    found = project_file(Path(_folder()))
    if found is None:
        return None
    from headway.settings import jobfile, yamlfile

    root = yamlfile.read(found).value
    return found if isinstance(root, dict) and jobfile.SECTION in root else None


def _check_alone(call: Call) -> None:
    """Words after a job file make it a program with arguments; one that cannot be executed was not
    meant as that.
    """
    file, *rest = call.words or [""]
    if not rest or not file.endswith(_JOB_FILES) or not os.path.isfile(file):
        return
    import shutil

    if shutil.which(file) is not None:
        return
    if rest[0].startswith("-"):
        hint = f"options stand before the job file: {fmt.shell_words(['hw', call.command.name, *rest, file])}"
    else:
        alone = fmt.shell_words(["hw", call.command.name, file])
        hint = (
            f"a job file stands alone: {alone}; options stand before it, such as --set NAME=VALUE"
        )
    raise UsageError(
        f"{file[:200]} has words after it, and so is no job file; nor is it a program", hint
    )


def makes_array(call: Call) -> bool:
    """Whether many jobs come of it, which nobody can follow as one."""
    if call.get("array") is not None:
        return True
    path = job_file(call.words)
    if path is None or call.get("smoke"):
        return False
    from headway.settings import jobfile

    return bool({"array", "matrix"} & jobfile.load(path).values.keys())


def _numbered(call: Call, command: list[str]) -> list[JsonObject]:
    """The jobs of `--array` for a plain command, in which `{{ index }}` may stand."""
    if call.get("array") is None:
        return []
    from headway.settings import sweep, template

    numbers = sweep.indices(call.get("array"), "--array")
    varies = "index" in template.names(command)
    return [
        {
            "index": number,
            "spec": {"command": template.fill(command, {"index": number})} if varies else {},
            "env": {},
        }
        for number in numbers
    ]


def _settings() -> "Settings":
    from pathlib import Path

    from headway.settings.layers import load

    return load(Path(_folder()))


def changes(call: Call, given: JsonMapping | None = None) -> JsonObject:
    """The fields of a JobSpec that were asked for by options; tags and variables join those that
    are `given`.
    """
    spec = {
        field.name: call.get(field.name)
        for field in job_fields.JOB
        if field.name not in _JOINED and call.get(field.name) is not None
    }
    known = given or {}
    if "processes" in spec and known.get("nodes"):
        spec.setdefault("nodes", 1)  # -n takes the place of what the file says about size
    if call.get("nodes") == 1 or (
        known.get("one_node") and ("nodes" in spec or "processes" in spec)
    ):
        spec["one_node"] = call.get("nodes") == 1
    tags = list(dict.fromkeys([*known.get("tags", []), *call.get("tags", [])]))
    if len(tags) > TAGS_MAX:
        raise UsageError(f"--tag: {len(tags)} tags are too many", f"at most {TAGS_MAX}")
    if tags:
        spec["tags"] = tags
    if call.get("retry") is not None:
        spec["retry"] = {"max": call.get("retry")}
    if call.get("retry_on") is not None:
        spec["retry"] = {"max": 1, **(spec.get("retry") or {}), "on": call.get("retry_on")}
    if call.get("after"):
        spec["after"] = list(dict.fromkeys(call.get("after")))
    if call.get("env"):
        spec["env_set"] = list(
            dict.fromkeys([*known.get("env_set", []), *(name for name, _ in call.get("env"))])
        )
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


def environment(
    call: Call,
    settings: "Settings",
    definition: JsonMapping,
    given: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Secrets of the private file < this environment < settings < the job file's < options.

    A container has the environment of its image, so from this one it gets only the variables that
    its cluster names.
    """
    from headway.settings.clusters import takes_environment

    around = inherited(os.environ)
    if not takes_environment(definition):
        around = {name: around[name] for name in definition.get("pass_env", ()) if name in around}
    env = {**settings.secrets(), **around, **_for_the_program(settings), **(given or {})}
    folder = call.get("tensorboard_dir")
    if isinstance(call.get("tensorboard"), str):  # what --tensorboard-dir was called before
        folder = folder or call.get("tensorboard")
    if folder:
        env["HEADWAY_TENSORBOARD_DIR"] = os.path.abspath(os.path.expanduser(folder))
    if call.get("autolog"):
        env["HEADWAY_AUTOLOG"] = "1"
    if call.get("telegraf"):
        env["HEADWAY_TELEGRAF"] = "1"
    if call.get("answer_as"):
        env["HEADWAY_COMPAT"] = ",".join(dict.fromkeys(call.get("answer_as")))
        if "mlflow" in call.get("answer_as"):
            env["MLFLOW_TRACKING_URI"] = "headway:"
    env |= dict(call.get("env", []))
    env.pop("HEADWAY_TOKEN", None)  # it opens a monitor, and is no job's business
    size = sum(len(os.fsencode(name)) + len(os.fsencode(value)) + 2 for name, value in env.items())
    if size > ENV_BYTES_MAX:
        largest = max(env, key=lambda name: len(env[name]))
        raise UsageError(
            f"the environment has {size} bytes, more than a process can be given ({ENV_BYTES_MAX})",
            f"the largest variable is {largest[:60]}: unset it, or put its value into a file",
        )
    return env


def _for_the_program(settings: "Settings") -> dict[str, str]:
    """Settings that the program itself, or the agent beside it, reads from its environment."""
    found = {}
    for name in ("tensorboard_dir", "log_level", "forward_exceptions"):
        value = settings.get(name)
        if settings.origin(name) != BUILT_IN and value is not None:
            found["HEADWAY_" + name.upper()] = (
                str(int(value)) if isinstance(value, bool) else str(value)
            )
    return found


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment as the shell gave it. Python puts LC_CTYPE into its own when there is no
    locale (PEP 538).
    """
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


def surroundings() -> JsonObject:
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
        raise UsageError(
            f"the current folder is not there: {error.strerror}", "cd to a folder that exists"
        ) from None
