"""The batch script of an attempt. Pure: what `--dry-run` prints is what sbatch gets. Called by the engine.

Slurm starts one shim per node, and each shim starts its own ranks, as on every other engine. Nothing secret is in the
script: the environment and the token lie in the task's private folder.
"""

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from headway.engines.protocol import Plan
from headway.model.errors import UsageError

MIB: Final = 1024 * 1024
MARGIN_S: Final = 120.0  # the shim ends the job at its time; Slurm's own limit comes later, and only if that failed
# option of the cluster or the job -> the directive
DIRECTIVES: Final[Mapping[str, str]] = {
    "partition": "--partition", "account": "--account", "qos": "--qos", "constraint": "--constraint",
    "reservation": "--reservation", "exclude": "--exclude", "nodelist": "--nodelist", "gpu_type": "",
}  # fmt: skip
_VALUE: Final = re.compile(r"[\w.,:@%+=&|!*()\[\]/~-]{1,256}\Z", re.ASCII)
_EXTRA: Final = re.compile(r"--[a-z][a-z-]*(?:=[\w.,:@%+=&|!*()\[\]/~-]*)?\Z", re.ASCII)


def comment(key: str) -> str:
    """By this an attempt is found again, also when sbatch's answer was lost."""
    return f"headway:{key}"


def render(plan: Plan, key: str, options: Mapping[str, Any], spool: Path, agent: Sequence[str]) -> str:
    lines = ["#!/bin/sh", *(f"#SBATCH {line}" for line in directives(plan, key, options, spool)), ""]
    count = len(plan.tasks)
    start = " ".join([*map(shlex.quote, agent), "shim", f'{shlex.quote(str(spool / key))}-"$1"'])
    step = f'shift "$SLURM_PROCID"; exec {start}'
    names = [task.name for task in plan.tasks]
    srun = ["srun", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", "--kill-on-bad-exit=0", "--wait=0"]
    srun += ["--export=ALL", "--unbuffered"]
    if gres := _gres(plan, options):
        srun.append(gres)
    lines += [
        "umask 077",
        f"exec {shlex.join(srun)} sh -c {shlex.quote(step)} headway {shlex.join(names)}",
        "",
    ]
    return "\n".join(lines)


def directives(plan: Plan, key: str, options: Mapping[str, Any], spool: Path) -> list[str]:
    """Every value is checked: a newline in one could become a directive of its own."""
    found = [
        f"--job-name={safe_name(plan.job)}", f"--comment={comment(key)}", f"--nodes={len(plan.tasks)}",
        f"--ntasks={len(plan.tasks)}", "--ntasks-per-node=1", "--no-requeue", "--export=NONE",
        f"--output={_path(spool)}/{key}.slurm", "--open-mode=append",
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
        found.append(f"--time={duration(plan.max_duration_s + plan.grace_s + MARGIN_S)}")
    found += [
        f"{flag}={_value(name, options[name])}" for name, flag in DIRECTIVES.items() if flag and options.get(name)
    ]
    return found + [_extra(line) for line in options.get("extra") or []]


def _gres(plan: Plan, options: Mapping[str, Any]) -> str | None:
    gpus = max(task.gpus for task in plan.tasks)
    kind = options.get("gpu_type")
    return f"--gres=gpu:{_value('gpu_type', kind)}:{gpus}" if gpus and kind else f"--gres=gpu:{gpus}" if gpus else None


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
        raise UsageError(f"the folder {text!r:.200} cannot stand in a batch script", "use one without blanks or quotes")
    return text


def _value(name: str, value: Any) -> str:
    text = str(value)
    if not _VALUE.match(text):
        raise UsageError(f"{name}: {text!r:.80} cannot stand in a batch script", "letters, digits and . , : - _ = can")
    return text


def _extra(line: Any) -> str:
    if not isinstance(line, str) or not _EXTRA.match(line):
        raise UsageError(f"extra: {line!r:.80} is not an option of sbatch", "for example: --exclusive or --nice=100")
    return line
