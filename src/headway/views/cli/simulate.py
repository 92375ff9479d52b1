"""`hw simulate JOB.yaml`: the same job file in a local container, so that mistakes show before a cluster's queue (45).

What a cluster would give (GPUs, memory, nodes, time) is left out, and said; so are variables of a scheduler.
Without a container engine, or without an image, the job runs on this machine in a clean environment, and that is said.
"""

import os
import re
from functools import partial
from typing import Any, Final

from headway.model.errors import UsageError
from headway.settings.nearest import did_you_mean
from headway.views import format as fmt
from headway.views.cli import place, run, submission
from headway.views.cli.dispatch import Call
from headway.views.source import Source

NAME: Final = "simulation"
_KEPT: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
_SCHEDULERS: Final = ("SLURM_", "SLURMD_", "SBATCH_", "PBS_", "LSB_", "AZUREML_", "AZ_BATCH_", "KUBERNETES_", "RAY_")
_VARIABLE: Final = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_IGNORED: Final[dict[str, Any]] = {
    "gpus": 0, "cpus": None, "memory_bytes": None, "max_duration_s": None, "nodes": 1, "gpu_per_node": None,
    "hold_s": 0.0, "priority": 0, "after": [], "retry": {}, "options": {},
}  # fmt: skip


def command(call: Call) -> int:
    if submission.job_file(call.words) is None:
        submission.checked_command(call.words)
    source = call.source()
    definition, why_not = _engine(call, source)
    call.values |= {"place": {"cluster": NAME if definition else "here", "definition": definition or {}}}
    asked = submission.wanted(source, call)
    if asked.jobs:
        raise UsageError("hw simulate runs one job, and this is an array", "take the array out, or set --set")
    image = asked.spec.get("image") or (definition or {}).get("image")
    if definition is not None and not image and not any(r.get("image") for r in asked.spec.get("roles") or []):
        why_not, call.values["place"] = "the job names no image", {"cluster": "here", "definition": {}}
        asked = submission.wanted(source, call)
    if why_not:
        _say(call, f"no container: {why_not}. It runs on this machine, in a clean environment")
        asked.env = _clean(asked)
    for warning in (*asked.warnings, *_warnings(asked.spec, asked.env, call.get("processes") or 1)):
        _say(call, warning)
    return _run(call, source, asked)


def _say(call: Call, text: str) -> None:
    call.terminal.say(f"hw: {call.terminal.err.safe(text)}")


def _engine(call: Call, source: Source) -> tuple[dict[str, Any] | None, str]:
    """The first container engine that answers: the cluster of -c, those of the settings, then docker and podman."""
    from pathlib import Path

    from headway.settings.clusters import TABLES, definition, resolve
    from headway.settings.layers import load

    configured = load(Path.cwd()).get("clusters")
    kinds = [name for name, table in TABLES.items() if "image" in table.options]
    if call.get("cluster"):
        chosen = resolve(call.values.pop("cluster"), configured)
        if chosen.get("engine") not in kinds:
            raise UsageError("hw simulate -c takes a cluster with containers", f"its engine is {' or '.join(kinds)}")
        asked = {NAME: chosen}
    else:
        asked = {name: found for name, found in configured.items() if found["engine"] in kinds}
        asked |= {kind: definition({"engine": kind}, kind) for kind in kinds if kind not in asked}
    rows = {row["name"]: row for row in place.survey(source, asked)}
    for name, found in asked.items():
        if rows[name]["error"] is None:
            return found, ""
    return None, "; ".join(str(rows[name]["error"]).partition(";")[0] for name in asked)


def _clean(asked: submission.Wanted) -> dict[str, str]:
    """What the job names itself, and what no program does without."""
    named = {*asked.spec.get("env_set", []), *asked.spec.get("secret_names", []), *_KEPT}
    return {name: value for name, value in asked.env.items() if name in named or name not in os.environ}


def _warnings(spec: dict[str, Any], env: dict[str, str], processes: int) -> list[str]:
    left_out = [f"{name.removesuffix('_bytes').removesuffix('_s')} {_shown(name, spec[name])}"
                for name, none in _IGNORED.items() if spec.get(name) and spec[name] != none]  # fmt: skip
    if spec.get("processes", 1) > processes:
        left_out.append(f"{spec['processes']} processes ({processes} here; -n N for more)")
    lines = [f"left out here: {', '.join(left_out)}"] if left_out else []
    words = [*spec["command"], *(word for role in spec.get("roles") or [] for word in role["command"]), *env.values()]
    used = {name for word in words for name in _VARIABLE.findall(word) if name.startswith(_SCHEDULERS)}
    lines += [f"{name} is set by a scheduler only, and is empty here" for name in sorted(used - set(env))]
    return lines


def _shown(name: str, value: Any) -> str:
    if name.endswith("_bytes"):
        return fmt.size(value)
    return fmt.duration(value) if name.endswith("_s") else str(value)


def _run(call: Call, source: Source, asked: submission.Wanted) -> int:
    """One role after another, each as a job of its own; the first that fails ends it."""
    spec = {**asked.spec, **{key: none for key, none in _IGNORED.items() if key in asked.spec}}
    spec["processes"] = call.get("processes") or 1
    spec["folders"] = _kept_here(call, spec.get("folders") or [])
    code = 0
    for role in _roles(call, spec.pop("roles", None) or []):
        one = {**spec, **role, "tags": [*spec.get("tags", []), NAME]}
        if len(role) > 1:
            _say(call, f"role {role['name'].rpartition('.')[2]}: {fmt.shell_words(role['command'])}")
        code = run.submit_and_attend(call, source, partial(submission.send, source, one, asked.env))
        if code != 0:
            break
    return code


def _kept_here(call: Call, folders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a job would send stays on this machine; what it would mount is copied."""
    sent = [folder for folder in folders if folder.get("target")]
    if not sent:
        return [{**folder, "mount": None, "options": []} for folder in folders]
    import tempfile

    kept = tempfile.mkdtemp(prefix="headway-simulation-")
    names = ", ".join(f"./{folder['name']}" for folder in sent)
    _say(call, f"left out here: nothing is sent; {names} {'goes' if len(sent) == 1 else 'go'} to {kept}")
    changed = [{**folder, "mount": None, "options": []} for folder in folders]
    return [f if not f.get("target") else {**f, "target": os.path.join(kept, f["name"])} for f in changed]


def _roles(call: Call, roles: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each role changes of the job; one that changes nothing where there are no roles."""
    wanted = call.get("role")
    names = [role["name"] for role in roles]
    if wanted and wanted not in names:
        hint = f"roles: {', '.join(names)}" if names else "the job has no roles"
        raise UsageError(f'there is no role "{wanted[:60]}"{did_you_mean(wanted, names)}', hint)
    if len(roles) > 1 and not wanted:
        _say(call, "the roles run one after another and do not meet; --role NAME runs one")
    chosen = [role for role in roles if wanted in (None, role["name"])]
    changed = [{"name": f"{NAME}.{r['name']}", "command": r["command"], "image": r.get("image")} for r in chosen]
    return [{k: v for k, v in one.items() if v is not None} for one in changed] or [{}]
