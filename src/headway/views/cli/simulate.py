"""`hw simulate JOB.yaml`: the same job file in local containers, so that mistakes show before a
cluster's queue (45).

It is one job with all tasks of the real one, roles and nodes together, so that they find each other
as they would there; each has one process, or `-n N`. What a cluster would give (GPUs, memory, time)
is left out, and said; so are variables of a scheduler. Without a container engine, or without an
image, the job runs on this machine in a clean environment, and that is said.
"""

import os
import re
from functools import partial
from typing import Final

from headway.model.errors import UsageError
from headway.model.json_types import JsonObject
from headway.model.spread import count_of, spread
from headway.settings.nearest import did_you_mean
from headway.views.api.source import Source
from headway.views.cli import choose_cluster, run, submission
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt

NAME: Final = "simulation"
_KEPT: Final = (
    "HOME",
    "LANG",
    "LC_ALL",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
)
_SCHEDULERS: Final = (
    "SLURM_",
    "SLURMD_",
    "SBATCH_",
    "PBS_",
    "LSB_",
    "AZUREML_",
    "AZ_BATCH_",
    "KUBERNETES_",
    "RAY_",
)
_VARIABLE: Final = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_RESOURCES: Final[JsonObject] = {"gpus": 0, "cpus": None, "memory_bytes": None}
_IGNORED: Final[JsonObject] = {
    **_RESOURCES, "max_duration_s": None, "hold_s": 0.0, "priority": 0, "after": [], "retry": {}, "options": {},
}  # fmt: skip


def command(call: Call) -> int:
    if submission.job_file(call.words) is None:
        submission.checked_command(call.words)
    source = call.source()
    definition, why_not = _engine(call, source)
    call.values |= {
        "place": {"cluster": NAME if definition else "here", "definition": definition or {}}
    }
    asked = submission.wanted(source, call)
    if asked.jobs:
        raise UsageError(
            "hw simulate runs one job, and this is an array of them",
            "hw submit runs them all; or take `array` and `matrix` out and give one value: --set NAME=VALUE",
        )
    image = asked.spec.get("image") or (definition or {}).get("image")
    if (
        definition is not None
        and not image
        and not any(r.get("image") for r in asked.spec.get("roles") or [])
    ):
        why_not, call.values["place"] = (
            "the job names no image",
            {"cluster": "here", "definition": {}},
        )
        asked = submission.wanted(source, call)
    if why_not:
        _say(call, f"no container: {why_not}. It runs on this machine, in a clean environment")
        asked.env = _clean(asked)
    roles = _chosen(call, asked.spec.get("roles") or [])
    for warning in (
        *asked.warnings,
        *_left_out(call, asked.spec, roles),
        *_unset(asked.spec, roles, asked.env),
    ):
        _say(call, warning)
    spec = _small(call, asked.spec, roles)
    return run.submit_and_attend(call, source, partial(submission.send, source, spec, asked.env))


def _say(call: Call, text: str) -> None:
    call.terminal.say(f"hw: {call.terminal.err.safe(text)}")


def _engine(call: Call, source: Source) -> tuple[JsonObject | None, str]:
    """The first container engine that answers: the cluster of -c, those of the settings, then
    docker and podman.
    """
    from pathlib import Path

    from headway.settings.clusters import TABLES, definition, resolve
    from headway.settings.layers import load

    configured = load(Path.cwd()).get("clusters")
    kinds = [name for name, table in TABLES.items() if "image" in table.options]
    if call.get("cluster"):
        chosen = resolve(call.values.pop("cluster"), configured)
        if chosen.get("engine") not in kinds:
            raise UsageError(
                "hw simulate -c takes a cluster with containers",
                f"its engine is {' or '.join(kinds)}",
            )
        asked = {NAME: chosen}
    else:
        asked = {name: found for name, found in configured.items() if found["engine"] in kinds}
        asked |= {kind: definition({"engine": kind}, kind) for kind in kinds if kind not in asked}
    rows = {row["name"]: row for row in choose_cluster.survey(source, asked)}
    for name, found in asked.items():
        if rows[name]["error"] is None:
            return found, ""
    return None, "; ".join(str(rows[name]["error"]).partition(";")[0] for name in asked)


def _clean(asked: submission.Wanted) -> dict[str, str]:
    """What the job names itself, and what no program does without."""
    named = {*asked.spec.get("env_set", []), *asked.spec.get("secret_names", []), *_KEPT}
    return {
        name: value for name, value in asked.env.items() if name in named or name not in os.environ
    }


# -- its size


def _chosen(call: Call, roles: list[JsonObject]) -> list[JsonObject]:
    """All roles, or the one of --role, which then nobody is there to help: its own end counts."""
    wanted = call.get("role")
    names = [role["name"] for role in roles]
    if wanted and wanted not in names:
        hint = f"roles: {', '.join(names)}" if names else "the job has no roles"
        raise UsageError(f'there is no role "{wanted[:60]}"{did_you_mean(wanted, names)}', hint)
    if not wanted:
        return roles
    (one,) = [role for role in roles if role["name"] == wanted]
    return [{**one, "completion": "all"} if one.get("completion") == "none" else one]


def _small(call: Call, spec: JsonObject, roles: list[JsonObject]) -> JsonObject:
    """The job as it is sent: as many tasks as it has, with nothing that only a cluster could give."""
    asked = call.get("processes")
    small = {**spec, **{key: none for key, none in _IGNORED.items() if key in spec}}
    small |= {
        "tags": [*spec.get("tags", []), NAME],
        "folders": _kept_here(call, spec.get("folders") or []),
    }
    if roles:
        small["roles"] = [{**role, **_RESOURCES, "processes": asked or 1} for role in roles]
        return small | {"nodes": 1, "processes": 1, "gpu_per_node": None}
    nodes = _nodes(call, spec)
    return small | {"nodes": nodes, "processes": asked or nodes, "gpu_per_node": None}


def _nodes(call: Call, spec: JsonObject) -> int:
    """Those that the file's numbers come to; `-n` takes the place of these, as everywhere."""
    nodes = int(spec.get("nodes") or 1)
    if call.get("processes"):
        return nodes
    count = count_of(int(spec.get("processes") or 1), nodes)
    return spread(count, per_node=spec.get("gpu_per_node"), nodes=nodes).nodes


def _left_out(call: Call, spec: JsonObject, roles: list[JsonObject]) -> list[str]:
    """A line for the job, and one for each role."""
    each = -(-int(spec.get("processes") or 1) // _nodes(call, spec))
    lines = (
        [f"left out here: {found}"]
        if (found := _shown(call, spec, _IGNORED, 1 if roles else each))
        else []
    )
    told = {
        role["name"]: _shown(call, role, _RESOURCES, role.get("processes", 1)) for role in roles
    }
    return lines + [f"left out here, of {name}: {found}" for name, found in told.items() if found]


def _shown(call: Call, values: JsonObject, ignored: JsonObject, processes: int) -> str:
    """What is asked for of what is ignored, as a person writes it. `processes`: of each task."""
    found = []
    here = call.get("processes") or 1
    for name, none in ignored.items():
        value = values.get(name)
        if not value or value == none:
            continue
        text = value
        if name.endswith("_bytes"):
            text = fmt.size(value)
        elif name.endswith("_s"):
            text = fmt.duration(value)
        found.append(f"{name.removesuffix('_bytes').removesuffix('_s')} {text}")
    more = [f"{processes} processes ({here} here; -n N for more)"] if processes > here else []
    return ", ".join([*found, *more])


def _unset(spec: JsonObject, roles: list[JsonObject], env: dict[str, str]) -> list[str]:
    """Variables of a scheduler that the job asks for."""
    words = [*spec["command"], *(word for role in roles for word in role["command"]), *env.values()]
    used = {
        name for word in words for name in _VARIABLE.findall(word) if name.startswith(_SCHEDULERS)
    }
    return [
        f"{name} is set by a scheduler only, and is empty here" for name in sorted(used - set(env))
    ]


def _kept_here(call: Call, folders: list[JsonObject]) -> list[JsonObject]:
    """What a job would send stays on this machine; what it would mount is copied."""
    copied = [{**folder, "mount": None, "options": []} for folder in folders]
    sent = [folder for folder in copied if folder.get("target")]
    if not sent:
        return copied
    import tempfile

    kept = tempfile.mkdtemp(prefix="headway-simulation-")
    names = ", ".join(f"./{folder['name']}" for folder in sent)
    verb = "goes" if len(sent) == 1 else "go"
    _say(call, f"left out here: nothing is sent; {names} {verb} to {kept}")
    for folder in sent:
        folder["target"] = os.path.join(kept, folder["name"])
    return copied
