"""Names for data that came from JSON, or goes there: what is in it is known only to who reads it.

For facts of agents, answers that views show, settings of engines. Where a shape is known, it is a
type of its own (`server/contract.py`, `model/job.py`).
"""

from collections.abc import Mapping
from typing import Any

JsonObject = dict[str, Any]
JsonMapping = Mapping[str, Any]
