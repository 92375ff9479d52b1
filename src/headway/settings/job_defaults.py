"""The setting `defaults`: what every job of a project has that does not say otherwise, by the keys
of a job file. Called by `layers.py` and by submissions.

defaults:
  env: {NCCL_IB_DISABLE: "0"}
  retry: {max: 3}
  hold: 1h
  image: pytorch:2.13
"""

import json
from typing import TYPE_CHECKING, Any

from headway.model.errors import UsageError
from headway.model.json_types import JsonMapping, JsonObject
from headway.settings import job_fields

if TYPE_CHECKING:  # YAML is loaded only where a file is read
    from headway.settings.yamlfile import Node


def read(node: "Node", field: str) -> JsonObject:
    """What a file says, checked, with the line of what is wrong."""
    from headway.settings.jobschema import DEFAULTS

    return DEFAULTS.read(node, field)


def defaults(value: Any, field: str) -> JsonObject:
    """The same from HEADWAY_DEFAULTS, as JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise UsageError(f"{field}: this is not JSON", 'for example: {"hold": "1h"}') from None
    return read(_node(value), field)


def _node(value: Any) -> "Node":
    from headway.settings.yamlfile import Node

    if isinstance(value, dict):
        return Node({str(key): _node(child) for key, child in value.items()}, 1)
    if isinstance(value, list):
        return Node([_node(child) for child in value], 1)
    return Node(value, 1)


def job_spec(given: JsonMapping) -> JsonObject:
    """The fields of a JobSpec that they are; variables are named in `env_set`, their values are
    `given["env"]`.
    """
    names = job_fields.by_key(job_fields.JOB)
    spec: JsonObject = {names[key]: value for key, value in given.items() if key in names}
    if "retry" in given:
        of_retry = job_fields.by_key(job_fields.RETRY)
        spec["retry"] = {of_retry[key]: value for key, value in given["retry"].items()}
    if given.get("env"):
        spec["env_set"] = list(given["env"])
    return spec
