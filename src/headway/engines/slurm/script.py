"""The batch script of an attempt. Pure: what `--dry-run` prints is what sbatch gets. Called by the
engine.

Slurm starts one shim per node, and each shim starts its own ranks, as on every other engine.
Nothing secret is in the script: the environment and the token lie in the task's private folder.
"""

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from headway.engines.protocol import Plan
from headway.model.errors import UsageError
from headway.model.json_types import JsonMapping
from headway.model.limits import FOLDER_END_S

MIB: Final = 1024 * 1024
# the shim ends the job at its time; Slurm's own limit comes later, and only if that failed
MARGIN_S: Final = 120.0
# option of the cluster or the job -> the directive
DIRECTIVES: Final[Mapping[str, str]] = {
    "partition": "--partition", "account": "--account", "qos": "--qos", "constraint": "--constraint",
    "reservation": "--reservation", "exclude": "--exclude", "nodelist": "--nodelist", "gpu_type": "",
}  # fmt: skip
_VALUE: Final = re.compile(r"[\w.,:@%+=&|!*()\[\]/~-]{1,256}\Z", re.ASCII)
_EXTRA: Final = re.compile(r"--[a-z][a-z-]*(?:=[\w.,:@%+=&|!*()\[\]/~-]*)?\Z", re.ASCII)
# Options of sbatch that `extra` may not have -> what to use. By the first ones an attempt is found
# again and started once; sbatch takes the beginning of a name for the whole.
_OURS: Final = {
    "--comment": "by it a lost answer is found again", "--output": "hw logs shows what it prints",
    "--array": "use --array of hw submit", "--open-mode": "", "--parsable": "", "--test-only": "use --dry-run",
    "--wait": "use --wait of hw submit", "--wrap": "", "--requeue": "use --retry", "--no-requeue": "it is always set",
    "--nodes": "use -n and --nodes of hw", "--ntasks": "use -n of hw", "--ntasks-per-node": "use -n of hw",
    "--export": "use --env", "--help": "", "--usage": "", "--version": "",
}  # fmt: skip

# On each node: of all shims of the job, those that run there. Only a process that started when the
# shim did is the shim (F29); field 22 of its stat, the 20th behind its name, says when.
_TERMINATE: Final = """\
start() { shift 19; echo "$1"; }
found=1
while [ $# -ge 2 ]; do
  if read -r line < "/proc/$1/stat" && [ "$(start ${line##*) })" = "$2" ]; then kill -TERM "$1" && found=0; fi
  shift 2
done 2> /dev/null
exit $found
"""


def comment(key: str) -> str:
    """By this an attempt is found again, also when sbatch's answer was lost."""
    return f"headway:{key}"


def render(plan: Plan, key: str, options: JsonMapping, spool: Path, agent: Sequence[str]) -> str:
    lines = [
        "#!/bin/sh",
        *(f"#SBATCH {line}" for line in directives(plan, key, options, spool)),
        "",
        "umask 077",
    ]
    return "\n".join(
        [*lines, f"exec {_srun(plan, options, spool, agent)} {shlex.quote(key)} {_names(plan)}", ""]
    )


def render_array(
    plan: Plan, key: str, members: Mapping[str, str], spec: str, spool: Path, agent: Sequence[str]
) -> str:
    """One script for many attempts that ask for the same. `members`: index -> key; `spec`: the
    indices for sbatch.
    """
    name = plan.job.rpartition("-")[0] or plan.job
    own = directives(replace(plan, job=name), key, plan.options, spool, output=f"{key}_%a")
    lines = [
        "#!/bin/sh",
        *(f"#SBATCH {line}" for line in [*own, f"--array={spec}"]),
        "",
        "umask 077",
    ]
    lines += [
        'case "$SLURM_ARRAY_TASK_ID" in',
        *(f"{int(index)}) key={k};;" for index, k in members.items()),
    ]
    lines += ["*) exit 64;;", "esac"]
    return "\n".join(
        [*lines, f'exec {_srun(plan, plan.options, spool, agent)} "$key" {_names(plan)}', ""]
    )


def shape(plan: Plan) -> tuple[str, ...]:
    """What an attempt asks Slurm for, without what is its own: equal for those that can be one
    array.
    """
    own = ("--job-name=", "--comment=", "--output=")
    asked = directives(plan, "", plan.options, Path("/"))
    return (_names(plan), *(line for line in asked if not line.startswith(own)))


def _srun(plan: Plan, options: JsonMapping, spool: Path, agent: Sequence[str]) -> str:
    """One shim on each node; behind it stand the attempt's key and the names of its tasks."""
    count = len(plan.tasks)
    start = " ".join([*map(shlex.quote, agent), "shim", f'{shlex.quote(str(spool))}/"$key-$1"'])
    step = f'key="$1"; shift; shift "$SLURM_PROCID"; exec {start}'
    words = [
        "srun",
        f"--nodes={count}",
        f"--ntasks={count}",
        "--ntasks-per-node=1",
        "--kill-on-bad-exit=0",
        "--wait=0",
    ]
    words += ["--export=ALL", "--unbuffered"]
    if gres := _gres(plan, options):
        words.append(gres)
    return f"{shlex.join(words)} sh -c {shlex.quote(step)} headway"


def _names(plan: Plan) -> str:
    return shlex.join(task.name for task in plan.tasks)


def directives(
    plan: Plan, key: str, options: JsonMapping, spool: Path, *, output: str | None = None
) -> list[str]:
    """Every value is checked: a newline in one could become a directive of its own. `output`: what
    the file is called into which the script itself prints, where not as the attempt; each element
    of an array has its own.
    """
    found = [
        f"--job-name={safe_name(plan.job)}", f"--comment={comment(key)}", f"--nodes={len(plan.tasks)}",
        f"--ntasks={len(plan.tasks)}", "--ntasks-per-node=1", "--no-requeue", "--export=NONE",
        f"--output={_path(spool)}/{output or key}.slurm", "--open-mode=append",
    ]  # fmt: skip
    if gres := _gres(plan, options):
        found.append(gres)
    cpus = _each(plan, [task.cpus for task in plan.tasks], plan.cpus)
    if cpus is None and not any(task.gpus for task in plan.tasks):
        cpus = max(task.processes for task in plan.tasks)
    if cpus is not None:
        found.append(f"--cpus-per-task={cpus}")
    memory = _each(plan, [task.memory_bytes for task in plan.tasks], plan.memory_bytes)
    if memory is not None:
        found.append(f"--mem={math.ceil(memory / MIB)}M")
    if plan.max_duration_s is not None:
        found.append(f"--time={duration(min(time_s(plan), options.get('time_s_max') or math.inf))}")
    found += [
        f"{flag}={_value(name, options[name])}"
        for name, flag in DIRECTIVES.items()
        if flag and options.get(name)
    ]
    return found + [_extra(line) for line in options.get("extra") or []]


def time_s(plan: Plan) -> float:
    """What Slurm is asked for beyond a job's own time: the end of its ranks, and what is left to
    send.
    """
    sending_s = FOLDER_END_S if any(folder.target for folder in plan.folders) else 0.0
    return (plan.max_duration_s or 0.0) + plan.grace_s + MARGIN_S + sending_s


def _gres(plan: Plan, options: JsonMapping) -> str | None:
    gpus = max(task.gpus for task in plan.tasks)
    kind = options.get("gpu_type")
    if not gpus:
        return None
    return f"--gres=gpu:{_value('gpu_type', kind)}:{gpus}" if kind else f"--gres=gpu:{gpus}"


def _each(plan: Plan, by_task: Sequence[int | None], whole: int | None) -> int | None:
    """What one node needs: the most that a task asks for, or its share of what the job asks for."""
    most = max((asked for asked in by_task if asked is not None), default=None)
    return most if most is not None or whole is None else math.ceil(whole / len(plan.tasks))


def duration(seconds: float) -> str:
    """Slurm's own form, `1-02:03:04`."""
    minutes, second = divmod(math.ceil(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days}-{hour:02d}:{minute:02d}:{second:02d}"


def safe_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:128]


def _path(path: Path) -> str:
    """A folder in a directive: sbatch takes the rest of the line, and `%` begins a pattern."""
    text = str(path)
    if not _VALUE.match(text) or "%" in text:
        raise UsageError(
            f"the folder {text!r:.200} cannot stand in a batch script",
            "use one without blanks or quotes",
        )
    return text


def _value(name: str, value: object) -> str:
    text = str(value)
    if not _VALUE.match(text):
        raise UsageError(
            f"{name}: {text!r:.80} cannot stand in a batch script",
            "letters, digits and . , : - _ = can",
        )
    return text


def _extra(line: object) -> str:
    if not isinstance(line, str) or not _EXTRA.match(line):
        raise UsageError(
            f"extra: {line!r:.80} is neither --name nor --name=value", "for example: --nice=100"
        )
    name = line.partition("=")[0]
    taken = next((own for own in _OURS if own.startswith(name)), None)
    if taken is not None:
        raise UsageError(
            f"extra: {line!r:.80}: {taken} is set by Headway itself", _OURS[taken] or "leave it out"
        )
    return line


def terminate(job_id: str, shims: Sequence[tuple[str, str]]) -> list[str]:
    """argv that asks the shims of a job, by pid and start, to end their ranks in order."""
    count = len(shims)
    step = [
        "srun",
        f"--jobid={job_id}",
        "--overlap",
        f"--nodes={count}",
        f"--ntasks={count}",
        "--ntasks-per-node=1",
    ]
    return [
        *step,
        "--mem=0",
        "sh",
        "-c",
        _TERMINATE,
        "headway",
        *(word for shim in shims for word in shim),
    ]
