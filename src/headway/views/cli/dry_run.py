"""`--dry-run` of `run` and `submit`: exactly what the engine would get, and nothing done. Called by
both.
"""

from typing import Final

from headway.model.json_types import JsonObject
from headway.views.api.source import Source
from headway.views.cli import submission
from headway.views.cli.dispatch import Call
from headway.views.text import format as fmt
from headway.wire.redact import MASK, is_secret_name

_SHOWN_MAX: Final = 20  # jobs of an array; --json has all


def show(call: Call, source: Source) -> int:
    asked = submission.wanted(source, call)
    first = asked.jobs[0] if asked.jobs else {"spec": {}, "env": {}}
    spec, env = {**asked.spec, **first["spec"]}, {**asked.env, **first["env"]}
    found: JsonObject = source.post("/api/plan", {"spec": spec, "env": env}, again=True)
    variables = _variables(spec, env)
    if call.as_json:
        call.terminal.put_json(
            {**found, "env": variables, "jobs": [_job(job) for job in asked.jobs]}
        )
        return 0
    out = call.terminal.out
    lines = found["text"].split("\n")
    lines += [f"env {name}={value}" for name, value in variables.items()]
    if asked.jobs:
        lines.append(f"an array of {fmt.plural(len(asked.jobs), 'job')}; above is the first:")
        lines += [_line(job, spec) for job in asked.jobs[:_SHOWN_MAX]]
        if len(asked.jobs) > _SHOWN_MAX:
            lines.append(f"  and {len(asked.jobs) - _SHOWN_MAX} more")
    call.terminal.put("\n".join(out.safe(line) for line in lines))
    call.terminal.say("hw: nothing was submitted")
    return 0


def _variables(spec: JsonObject, env: dict[str, str]) -> dict[str, str]:
    """What the submission adds to the environment; secrets by name alone."""
    secret = set(spec.get("secret_names") or [])
    named = dict.fromkeys([*spec.get("env_set", []), *(name for name in secret if name in env)])
    return {
        name: MASK if is_secret_name(name, secret) else env[name] for name in named if name in env
    }


def _job(job: JsonObject) -> JsonObject:
    return {
        "index": job["index"],
        "parameters": job["spec"].get("parameters"),
        "command": job["spec"].get("command"),
    }


def _line(job: JsonObject, spec: JsonObject) -> str:
    return f"  {job['index']}  {fmt.shell_words(job['spec'].get('command') or spec['command'])}"
