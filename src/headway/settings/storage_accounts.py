"""The setting `accounts`: who one is in storage. It names the variables that hold keys, never the
keys themselves.

    accounts:
      eastblob: {kind: azure, account: vigeast, sas: EASTBLOB_SAS}
      lab:      {kind: s3, endpoint: "http://minio.lab:9000", key_id: LAB_KEY_ID, secret: LAB_SECRET}

A variable is looked for in the environment, then among the `secrets` of the private file. Called by
`schema.py`.
"""

import json
import re
from typing import Final

from headway.model.errors import UsageError
from headway.settings.nearest import did_you_mean

FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "azure": ("account", "endpoint", "key", "sas"),
    "s3": ("endpoint", "region", "key_id", "secret", "token", "virtual_hosted"),
}
NAMES_OF_SECRETS: Final = ("key", "sas", "key_id", "secret", "token")
ACCOUNTS_MAX: Final = 64
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")


def accounts(value: object, field: str) -> dict[str, dict[str, str]]:
    if isinstance(value, str):  # HEADWAY_ACCOUNTS, as JSON
        value = _parsed(value)
    if not isinstance(value, dict) or len(value) > ACCOUNTS_MAX:
        raise UsageError(
            f"{field}: accounts is a mapping of names to accounts", "for example: {lab: {kind: s3}}"
        )
    return {str(name): _account(given, f"{field}.{name}") for name, given in value.items()}


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _account(given: object, field: str) -> dict[str, str]:
    if not isinstance(given, dict):
        raise UsageError(
            f"{field}: an account is a mapping",
            "for example: {kind: azure, account: NAME, key: VARIABLE}",
        )
    kind = given.get("kind")
    if kind not in FIELDS:
        raise UsageError(
            f"{field}.kind: {kind!r:.40} is not one of {', '.join(FIELDS)}{did_you_mean(str(kind), FIELDS)}"
        )
    for name, text in given.items():
        if name != "kind" and name not in FIELDS[kind]:
            raise UsageError(
                f'{field}: unknown key "{name}"{did_you_mean(str(name), FIELDS[kind])}'
            )
        if not isinstance(text, str) and not (name == "virtual_hosted" and isinstance(text, bool)):
            raise UsageError(f"{field}.{name}: not a text")
        if name in NAMES_OF_SECRETS and not _VARIABLE.match(str(text)):
            raise UsageError(
                f"{field}.{name} is the name of a variable, not the key itself",
                "put the key into the environment, or under `secrets` in the private file, and name it here",
            )
    return {name: str(text) for name, text in given.items()}
