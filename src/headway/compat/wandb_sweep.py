"""`wandb.sweep` and `wandb.agent` within one process: a grid, or values drawn at random, one run after the other.

wandb's server chooses the values of a sweep; here the process does. For many jobs at once there is `hw submit --sweep`.
"""

import math
import random

from headway.compat.wandb_errors import Error
from headway.compat.wandb_types import warn_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from headway.model.json_types import JsonObject

RUNS_DEFAULT = 10  # of a random sweep that names no number: wandb's would never end
_sweeps: "dict[str, JsonObject]" = {}
chosen: "list[JsonObject]" = []  # what the agent has chosen for the run that begins next


def sweep(
    sweep: object = None, entity: object = None, project: object = None, prior_runs: object = None
) -> str:
    from headway.compat.wandb_run import generate_id

    config = sweep() if callable(sweep) else sweep
    if not isinstance(config, dict):
        raise Error("wandb.sweep takes a dictionary")
    name = generate_id()
    _sweeps[name] = config
    return name


def agent(
    sweep_id: str,
    function: "Callable[[], Any] | None" = None,
    entity: object = None,
    project: object = None,
    count: "int | None" = None,
) -> None:
    config = _sweeps.get(str(sweep_id).rpartition("/")[2])
    if config is None:
        raise Error(
            f"sweep {sweep_id!r} was not made by this script; wandb's server is not asked. See `hw submit --sweep`"
        )
    if function is None:
        raise Error(
            "wandb.agent needs function=; commands of a sweep are run by `hw submit --sweep`"
        )
    from headway.compat import wandb

    for number, values in enumerate(_choices(config)):
        if number == (count or config.get("run_cap") or _default(config)):
            break
        chosen[:] = [values]
        try:
            function()
        finally:
            chosen.clear()
            if wandb.run is not None:
                wandb.run.finish()


def _default(config: "JsonObject") -> "int | None":
    return None if config.get("method") == "grid" else RUNS_DEFAULT


def _choices(config: "JsonObject") -> "Iterator[JsonObject]":
    parameters = config.get("parameters") or {}
    method = config.get("method", "random")
    if method == "grid":
        yield from _grid(list(parameters.items()))
        return
    if method != "random":
        warn_once(
            "sweep",
            f"wandb.sweep: method {method!r} is wandb's server's; values are drawn at random here",
        )
    while True:
        yield {name: _draw(name, rule) for name, rule in parameters.items()}


def _grid(parameters: "list[tuple[str, Any]]") -> "Iterator[JsonObject]":
    if not parameters:
        yield {}
        return
    (name, rule), rest = parameters[0], parameters[1:]
    for value in _values(name, rule):
        for more in _grid(rest):
            yield {name: value, **more}


def _values(name: str, rule: "JsonObject") -> "list[Any]":
    if "values" in rule:
        return list(rule["values"])
    if "value" in rule:
        return [rule["value"]]
    if "parameters" in rule:
        return list(_grid(list(rule["parameters"].items())))
    low, high = rule.get("min"), rule.get("max")
    if isinstance(low, int) and isinstance(high, int):
        return list(range(low, high + 1))
    raise Error(f"wandb.sweep: a grid needs values for {name!r}")


def _draw(name: str, rule: "JsonObject") -> "Any":
    if "parameters" in rule:
        return {inner: _draw(inner, one) for inner, one in rule["parameters"].items()}
    if "value" in rule:
        return rule["value"]
    if "values" in rule:
        weights = rule.get("probabilities")
        return (
            random.choices(list(rule["values"]), weights)[0]
            if weights
            else random.choice(list(rule["values"]))
        )
    kind = str(rule.get("distribution") or "")
    if "mu" in rule or kind.endswith("normal"):
        value = random.gauss(float(rule.get("mu", 0.0)), float(rule.get("sigma", 1.0)))
        return _rounded(math.exp(value) if kind.startswith(("log", "q_log")) else value, rule)
    low, high = rule.get("min"), rule.get("max")
    if low is None or high is None:
        raise Error(f"wandb.sweep: nothing says which values {name!r} may have")
    if kind in ("log_uniform", "q_log_uniform"):
        return _rounded(math.exp(random.uniform(low, high)), rule)
    if kind in ("log_uniform_values", "q_log_uniform_values"):
        return _rounded(math.exp(random.uniform(math.log(low), math.log(high))), rule)
    if isinstance(low, int) and isinstance(high, int) and kind in ("", "int_uniform"):
        return random.randint(low, high)
    return _rounded(random.uniform(low, high), rule)


def _rounded(value: float, rule: "JsonObject") -> float:
    step = rule.get("q")
    return round(value / step) * step if step else value
