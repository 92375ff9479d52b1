"""From a place and the settings to an open store. The only file that imports obstore. Called by
`transfer.py`, and by the carrier of a job's folders.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headway.model.errors import (
    HeadwayError,
    NotFoundError,
    RefusedError,
    UnreachableError,
    UsageError,
)
from headway.model.json_types import JsonObject
from headway.model.limits import STORAGE_RETRY_S
from headway.settings.nearest import did_you_mean
from headway.settings.storage_accounts import NAMES_OF_SECRETS
from headway.storage.location import AZURE, LOCAL, S3, Place

if TYPE_CHECKING:
    from obstore.store import AzureStore, LocalStore, S3Store

    Store = AzureStore | LocalStore | S3Store


_METADATA = "169.254.169.254"
_ACCOUNT_HINTS = {
    AZURE: "an account under `accounts:` of headway.yaml; or AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    S3: "an account under `accounts:` of headway.yaml; or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
}


class CredentialsError(RefusedError):
    """The storage does not let this account in."""


def library() -> Any:
    """obstore, or words about how to get it."""
    try:
        import obstore
    except ImportError:
        raise RefusedError(
            "storage needs the package obstore, which is not installed here",
            "pip install 'headway[storage]'",
        ) from None
    return obstore


def choose(
    place: Place, accounts: Mapping[str, Mapping[str, str]], name: str | None
) -> dict[str, str]:
    """The account for a place: the one that is named, else the only one of its kind, else none."""
    chosen = choose_name(place, accounts, name)
    return {} if chosen is None else dict(accounts[chosen])


def choose_name(
    place: Place, accounts: Mapping[str, Mapping[str, str]], name: str | None
) -> str | None:
    if place.kind == LOCAL:
        return None
    if name is not None:
        if name not in accounts:
            raise UsageError(
                f'there is no account "{name[:60]}"{did_you_mean(name, accounts)}',
                f"known: {', '.join(accounts) or 'none'}; hw config accounts",
            )
        if accounts[name]["kind"] != place.kind:
            raise UsageError(
                f"the account {name} is for {accounts[name]['kind']}, and {place} is not"
            )
        return name
    fitting = [known for known, found in accounts.items() if found["kind"] == place.kind]
    if len(fitting) > 1:
        raise UsageError(
            f"several accounts could open {place}",
            f"say which with --account: {', '.join(fitting)}",
        )
    return fitting[0] if fitting else None


def with_keys(account: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """The account with the values of the variables that it names."""
    found = dict(account)
    for field in NAMES_OF_SECRETS:
        if field in found:
            value = variables.get(found[field], "")
            if not value:
                raise UsageError(
                    f"the account needs the variable {found[field]}, which is not set",
                    "set it in the environment, or under `secrets` in the private file",
                )
            found[field] = value
    return found


def open_store(
    place: Place, account: Mapping[str, str], retry_s: float = STORAGE_RETRY_S
) -> "Store":
    """`account` with its keys. Nothing is asked of the storage yet."""
    library()
    from obstore.store import AzureStore, LocalStore, S3Store

    common: JsonObject = {"retry_config": {"max_retries": 4, "retry_timeout": _seconds(retry_s)}}
    endpoint = account.get("endpoint")
    if endpoint is not None:
        common |= {
            "endpoint": endpoint,
            "client_options": {"allow_http": endpoint.startswith("http://")},
        }
    try:
        if place.kind == LOCAL:
            return LocalStore(prefix=place.container)
        if place.kind == AZURE:
            return AzureStore(place.container, **_azure(account), **common)
        return S3Store(place.container, **_s3(account), **common)
    # the library has a class of its own for each wrong setting, and hides none of them behind a
    # common one
    except Exception as error:
        said = str(error).split("\n")[0][:500]  # what follows is for people who debug the library
        if "Account must be specified" in said:
            raise CredentialsError(
                f"{place}: no storage account is known", _ACCOUNT_HINTS[AZURE]
            ) from None
        raise UsageError(f"{place} cannot be opened with this account: {said}") from None


def _seconds(seconds: float) -> Any:
    from datetime import timedelta

    return timedelta(seconds=seconds)


def _azure(account: Mapping[str, str]) -> JsonObject:
    found: JsonObject = {"account_name": account["account"]} if "account" in account else {}
    if "key" in account:
        found["account_key"] = account["key"]
    if "sas" in account:
        found["sas_token"] = account["sas"].removeprefix("?")  # portals show it with the mark
    return found


def _s3(account: Mapping[str, str]) -> JsonObject:
    names = {
        "key_id": "access_key_id",
        "secret": "secret_access_key",
        "token": "session_token",
        "region": "region",
    }
    found: JsonObject = {theirs: account[ours] for ours, theirs in names.items() if ours in account}
    if "endpoint" in account:
        found["virtual_hosted_style_request"] = account.get("virtual_hosted") == "True"
        found.setdefault("region", "us-east-1")
    return found


def explain(error: Exception, place: Place, keys: Mapping[str, str] | None = None) -> HeadwayError:
    """An error of the library in our words; no key of the account is ever in it."""
    text = str(error).split("\n")[0][:500]
    for field, value in (keys or {}).items():
        text = text.replace(value, "…") if field in NAMES_OF_SECRETS and value else text
    kind = type(error).__name__
    if kind in ("NotFoundError", "FileNotFoundError") or "404 Not Found" in text:
        return NotFoundError(
            f"there is no {place}", "does the container exist? hw storage ls shows what there is"
        )
    # where the library looks last; it may be away for a moment only, so this is no refusal
    if _METADATA in text:
        said = f"{place}: no key for it was found, and this machine has no identity of its own in the cloud"
        return UnreachableError(said, _ACCOUNT_HINTS.get(place.kind, ""))
    if kind in ("PermissionDeniedError", "UnauthenticatedError"):
        return CredentialsError(
            f"{place}: the storage refuses this account", "is the key right, and not expired?"
        )
    return UnreachableError(
        f"{place}: {text}", "is the address right, and does the container exist?"
    )
