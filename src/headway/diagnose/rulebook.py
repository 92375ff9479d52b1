"""The rules, one file per family of causes. A new rule is a row here and a case in tests/golden/diagnose."""

from headway.diagnose.rule import Rule
from headway.diagnose.rules import (
    code,
    collective,
    data,
    environment,
    gpu,
    host_memory,
    launcher,
    network,
    numerics,
    scheduler,
    storage_faults,
    timeouts,
)

FAMILIES = (
    host_memory,
    gpu,
    environment,
    data,
    storage_faults,
    numerics,
    collective,
    network,
    launcher,
    scheduler,
    timeouts,
    code,
)
RULES: tuple[Rule, ...] = tuple(rule for family in FAMILIES for rule in family.RULES)
