"""What differs between jobs, and what of it most likely explains their outcomes: for `hw diff` and
`/api/diff`.

The order of `likely`: every difference gets a weight from 0 to 1, and the heaviest comes first.
1. A config key whose importance can be seen among siblings (jobs of the same experiment or array)
   weighs what it explains of the outcome there (`importance`): its share of what stronger keys
   leave, less the chance that it is an accident.
2. What nobody tried apart weighs by its kind (`_WEIGHTS`): code before data, config keys,
   hardware, packages that compute, arguments, environment variables, other packages, the node. A
   key such as `seed` or `output_dir` weighs next to nothing.
The outcome is the metric that is asked for, else the first one that has a better side and that all
of them logged, else whether they succeeded.
"""

import json
import re
import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from headway.model.errors import UsageError
from headway.model.json_types import JsonObject
from headway.model.limits import DIFF_JOBS_MAX, DIFF_SIBLINGS_MAX
from headway.model.metric_direction import Direction, direction
from headway.store import catalog, compare_table, effective_config, importance, summaries, tracked
from headway.store.jsonform import iso

_WEIGHTS: Final = {
    "code": 0.5, "data": 0.45, "config": 0.3, "hardware": 0.3, "package": 0.25, "command": 0.2,
    "environment": 0.15, "small package": 0.08, "label": 0.04, "node": 0.02,
}  # fmt: skip
# packages that compute: another version of one can change a result
_COMPUTING: Final = frozenset(
    "torch torchvision torchaudio tensorflow keras jax jaxlib flax numpy scipy transformers accelerate datasets "
    "lightning pytorch_lightning triton deepspeed xformers flash_attn timm scikit_learn xgboost lightgbm bitsandbytes "
    "peft optax tokenizers".split()
)
_LABEL: Final = re.compile(
    r"(?:^|[._-])(?:seed|name|tag|tags|note|notes|out|output|output_dir|dir|logdir|log_dir|save|path|port|host|device|"
    r"verbose|id|run)(?:$|[._-])"
)
_SIBLING_WEIGHT_MIN: Final = 0.02


class Side(msgspec.Struct):
    """One of the jobs. `code` is what the command line makes files of."""

    id: str
    name: str
    state: str
    cause: str | None
    submitted_at: str | None
    elapsed_s: float | None
    value: float | None  # of the outcome's metric
    step: int | None
    cwd: str
    snapshot: str | None
    commit: str | None
    patch: str  # uncommitted changes


class Outcome(msgspec.Struct):
    metric: str | None
    direction: Direction | None
    values: list[float | None]
    states: list[str]
    siblings: int  # how many jobs the weights of config keys come from, these included


class Likely(msgspec.Struct):
    what: str
    key: str
    values: list[Any]
    why: str
    weight: float


class Change(msgspec.Struct):
    key: str
    values: list[Any]


class Difference(msgspec.Struct):
    ids: list[str]
    jobs: list[Side]
    outcome: Outcome
    likely: list[Likely]
    config: list[Change]
    command: list[Change]
    packages: list[Change]
    environment: list[Change]
    hardware: list[Change]
    data: list[Change]
    node: list[Change]
    code_differs: bool | None  # None: it is not known of all of them what they ran
    equal: list[str]  # parts in which they do not differ


def difference(
    c: sqlite3.Connection, refs: Sequence[str], metric: str | None, want: Direction | None, now_ns: int
) -> Difference:  # fmt: skip
    if not 2 <= len(refs) <= DIFF_JOBS_MAX:
        raise UsageError(
            f"a difference is between 2 to {DIFF_JOBS_MAX} jobs, not {len(refs)}",
            "for more: hw compare",
        )
    keys = [catalog.resolve(c, ref) for ref in refs]
    if len(set(keys)) != len(keys):
        raise UsageError("that is the same job twice", "hw diff takes the ids of different jobs")
    rows = [_row(c, key) for key in keys]
    parts = [_parts(c, row) for row in rows]
    machines = [_machine(row) for row in rows]
    if all(machines):  # what one of them does not tell cannot be compared
        for part, machine in zip(parts, machines, strict=True):
            part["hardware"] |= machine
    changes = {name: _changes([part[name] for part in parts]) for name in _PARTS}
    outcome, sides = _outcome(c, rows, metric, want, now_ns)
    weights = _sibling_weights(c, rows, outcome)
    code = _code_differs(sides)
    likely = _likely(changes, code, weights, outcome, sides)
    equal = [name for name in _PARTS if not changes[name]]
    if code is False:
        equal.append("code")
    return Difference(
        [side.id for side in sides], sides, outcome, likely, changes["config"], changes["command"],
        changes["packages"], changes["environment"], changes["hardware"], changes["data"], changes["node"],
        code, equal,
    )  # fmt: skip


# -- the parts of a job

_PARTS: Final = ("config", "command", "packages", "environment", "hardware", "data", "node")


def _row(c: sqlite3.Connection, pk: int) -> sqlite3.Row:
    row: sqlite3.Row = c.execute("SELECT * FROM jobs WHERE pk = ?", (pk,)).fetchone()
    return row


def _parts(c: sqlite3.Connection, row: sqlite3.Row) -> dict[str, JsonObject]:
    spec: JsonObject = json.loads(row["spec"])
    seen: JsonObject = json.loads(row["provenance"] or "null") or {}
    config = effective_config.effective(row["config"], row["spec"])
    nodes = c.execute(
        """SELECT DISTINCT t.node FROM attempts a JOIN tasks t ON t.attempt = a.pk
           WHERE a.job = ? AND t.node IS NOT NULL ORDER BY t.node LIMIT 16""",
        (row["pk"],),
    )
    env = {f"${name}": value for name, value in (spec.get("env_kept") or {}).items()}
    hardware: JsonObject = {}
    for name in ("gpus", "processes", "nodes", "cpus", "memory_bytes"):
        if spec.get(name):
            hardware[name] = spec[name]
    return {
        "config": config,
        "command": _command(spec, config),
        "packages": seen.get("packages") or {},
        "environment": {
            "python": seen.get("python"), "executable": seen.get("executable"), "image": spec.get("image"),
            "platform": seen.get("platform"), "user": seen.get("user"), **env,
        },
        "hardware": hardware,
        "data": _data(c, row["pk"], spec),
        "node": {"node": ", ".join(r["node"] for r in nodes) or None, "cluster": row["cluster"]},
    }  # fmt: skip


def _machine(row: sqlite3.Row) -> JsonObject:
    """Processor, memory, GPUs and driver, as its agent saw them; empty of an old record."""
    seen: JsonObject = json.loads(row["provenance"] or "null") or {}
    return effective_config.flat(seen.get("hardware") or {})


def _command(spec: JsonObject, config: JsonObject) -> JsonObject:
    """The program, and the arguments that the config does not tell already."""
    words = [str(word) for word in spec.get("command") or []]
    in_command = effective_config.from_command(words)
    plain = words[:1]
    position = 1
    while position < len(words):
        word = words[position]
        position += 1
        name = word.partition("=")[0].lstrip("-").replace("-", "_")
        if name not in in_command:
            plain.append(word)
        elif "=" not in word and in_command[name] is not True:
            position += 1  # the next word is its value
    told = {name: value for name, value in in_command.items() if name not in config}
    return {"command": " ".join(plain), "cwd": spec.get("cwd"), **told}


def _data(c: sqlite3.Connection, job: int, spec: JsonObject) -> JsonObject:
    """Folders of the job by where they come from, and fingerprints where the program gave any
    (`hw.data`).
    """
    found: JsonObject = {}
    for fact in tracked.data(c, job):
        digest = str(fact.get("digest") or "")[:12]
        size, files = fact.get("bytes"), fact.get("files")
        found[str(fact.get("name"))] = f"{digest} ({files} files, {size} bytes)"
    for folder in spec.get("folders") or []:
        name = str(folder.get("name") or folder.get("at") or "folder")
        found.setdefault(name, folder.get("source") or folder.get("from") or folder.get("url"))
    return found


def _changes(parts: Sequence[JsonObject]) -> list[Change]:
    _, differs = compare_table.split(parts)
    found = [Change(key, [part.get(key) for part in parts]) for key in differs]
    return [one for one in found if one.key != "python" or not _same_version(one.values)]


def _same_version(values: Sequence[Any]) -> bool:
    """`3.11` is what is known of a `3.11.7` that never said so: no difference."""
    longest = max((str(value or "") for value in values), key=len)
    return all(value and (longest == value or longest.startswith(f"{value}.")) for value in values)


# -- outcome


def _outcome(
    c: sqlite3.Connection, rows: Sequence[sqlite3.Row], metric: str | None, want: Direction | None,
    now_ns: int,
) -> tuple[Outcome, list[Side]]:  # fmt: skip
    keys = [row["pk"] for row in rows]
    if metric is None:
        names, _ = compare_table.metric_names(c, keys, compare_table.Asked())
        known = summaries.read(c, keys, names) if names else {}
        common = [name for name in names if all(name in known.get(key, {}) for key in keys)]
        goals = tracked.goals(c, keys, common)
        metric = next((name for name in common if goals.get(name) or direction(name)), None)
    else:
        goals = tracked.goals(c, keys, [metric])
        known = summaries.read(c, keys, [metric])
    wanted = want
    if wanted is None and metric is not None:
        wanted = goals.get(metric) or direction(metric)
    sides = []
    for row in rows:
        summary = known.get(row["pk"], {}).get(metric) if metric else None
        value, step = None, None
        if summary is not None:
            value, step = summary.best(wanted)
            if value is None and summary.last - summary.last == 0:
                value, step = summary.last, summary.step
        sides.append(_side(c, row, value, step, now_ns))
    outcome = Outcome(
        metric, wanted, [side.value for side in sides], [side.state for side in sides], len(rows)
    )
    return outcome, sides


def _side(
    c: sqlite3.Connection, row: sqlite3.Row, value: float | None, step: int | None, now_ns: int
) -> Side:  # fmt: skip
    spec: JsonObject = json.loads(row["spec"])
    seen: JsonObject = json.loads(row["provenance"] or "null") or {}
    git: JsonObject = seen.get("git") or {}
    cause = c.execute(
        "SELECT cause FROM attempts WHERE job = ? AND cause IS NOT NULL ORDER BY number DESC LIMIT 1",
        (row["pk"],),
    ).fetchone()
    told = json.loads(row["cause"] or (cause["cause"] if cause else None) or "null") or {}
    return Side(
        row["id"], row["name"], row["state"], told.get("text"), iso(row["submitted_ns"]),
        compare_table.elapsed_s(row, now_ns), value, step, str(spec.get("cwd") or ""), spec.get("code"),
        git.get("commit"), str(git.get("diff") or ""),
    )  # fmt: skip


def _code_differs(sides: Sequence[Side]) -> bool | None:
    if all(side.snapshot for side in sides):
        return len({side.snapshot for side in sides}) > 1
    if all(side.commit for side in sides):
        return len({(side.commit, side.patch) for side in sides}) > 1
    return None


# -- what explains it


def _sibling_weights(
    c: sqlite3.Connection, rows: Sequence[sqlite3.Row], outcome: Outcome
) -> dict[str, importance.KeyImportance]:
    """Importance of config keys for the outcome, among jobs of the same experiment or array."""
    group = ""
    for column in ("experiment", "array"):
        shared = {row[column] for row in rows}
        if len(shared) == 1 and None not in shared:
            group = column
            break
    if not group:
        return {}
    siblings = c.execute(
        f"""SELECT pk, state, config, spec FROM jobs WHERE {group} = ? AND deleted_ns IS NULL
            ORDER BY submitted_ns DESC LIMIT ?""",  # noqa: S608  (one of two words of ours)
        (rows[0][group], DIFF_SIBLINGS_MAX),
    ).fetchall()
    keys = [int(row["pk"]) for row in siblings]
    values: dict[int, float] = {}
    if outcome.metric is not None:
        for key, of_job in summaries.read(c, keys, [outcome.metric]).items():
            best = of_job[outcome.metric].best(outcome.direction)[0]
            if best is not None:
                values[key] = best
    else:
        over = {"succeeded": 1.0, "failed": 0.0}
        values = {row["pk"]: over[row["state"]] for row in siblings if row["state"] in over}
    known = [row for row in siblings if row["pk"] in values]
    configs = [effective_config.effective(row["config"], row["spec"]) for row in known]
    _, differs = compare_table.split(configs)
    wanted = outcome.direction or "max"
    ranked = importance.rank(configs, differs, [values[row["pk"]] for row in known], wanted)
    outcome.siblings = len(known)
    return {key.key: key for key in ranked}


def _likely(
    changes: dict[str, list[Change]], code: bool | None, weights: dict[str, importance.KeyImportance],
    outcome: Outcome, sides: Sequence[Side],
) -> list[Likely]:  # fmt: skip
    about = outcome.metric or "success"
    found: list[Likely] = []
    if code:
        values = [
            side.snapshot or f"{(side.commit or '')[:10]}{'+' if side.patch else ''}"
            for side in sides
        ]
        found.append(Likely("code", "code", values, "the code differs", _WEIGHTS["code"]))
    for change in changes["config"]:
        weight, why = _config_weight(change.key, weights, about, outcome.siblings)
        found.append(Likely("config", change.key, change.values, why, weight))
    for change in changes["packages"]:
        computes = change.key.lower().replace("-", "_") in _COMPUTING
        why = "a package that computes" if computes else "another package"
        kind = "package" if computes else "small package"
        found.append(Likely("package", change.key, change.values, why, _WEIGHTS[kind]))
    for part, why in (
        ("data", "the data differ"), ("hardware", "other hardware"), ("command", "another command"),
        ("environment", "another environment"), ("node", "another machine"),
    ):  # fmt: skip
        for change in changes[part]:
            weight = _WEIGHTS[part]
            if change.key in ("user", "cwd", "executable"):
                weight = _WEIGHTS["label"]
            found.append(Likely(part, change.key, change.values, why, weight))
    found.sort(key=lambda one: -one.weight)
    return found


def _config_weight(
    key: str, weights: dict[str, importance.KeyImportance], about: str, siblings: int
) -> tuple[float, str]:
    known = weights.get(key)
    if known is None:
        if _LABEL.search(key.lower()):
            return _WEIGHTS["label"], "a label or a seed; no other jobs show what it does"
        return _WEIGHTS["config"], "no other jobs show what it does"
    weight = max(_SIBLING_WEIGHT_MIN, known.rest * (1 - known.chance))
    if known.rest <= 0 or known.chance > 0.2:
        return _SIBLING_WEIGHT_MIN, f"makes no visible difference for {about} among {siblings} jobs"
    what = f"explains {known.share:.0%} of {about} among {siblings} jobs"
    if known.share < known.rest - 0.005:
        what = f"explains {known.rest:.0%} of what stronger keys leave of {about}, among {siblings} jobs"
    return min(1.0, 0.3 + weight), what
