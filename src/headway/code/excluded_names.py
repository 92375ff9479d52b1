"""Names that never belong to a snapshot: what tools leave behind, and files that hold secrets.
Called by `tree.py` and `snapshot.py`; `docs/guides/code.md` lists both.

A pattern in `.hwignore` that begins with `!` takes back what tools leave behind. A secret is taken
only when `code.allow` names it.
"""

from functools import lru_cache
from typing import Final

from headway.code.ignore import Rules

LEFT_BEHIND: Final = (
    ".git", ".hg/", ".svn/", "__pycache__/", "*.pyc", "*.pyo", ".ipynb_checkpoints/", ".mypy_cache/", ".pytest_cache/",
    ".ruff_cache/", ".hypothesis/", ".tox/", ".nox/", ".venv/", "node_modules/", "*.egg-info/", ".DS_Store",
)  # fmt: skip

# Outside of git, where nothing says what is code: names of data and of what was built. A folder
# that holds Python files itself is code, whatever its name.
DATA_FOLDERS: Final = ("data", "datasets", "output", "outputs", "assets")
BUILT: Final = ("*.so", "*.tar.gz", "*.zip")

SECRETS: Final = (
    ".env", ".env.*", "!.env.example", "!.env.sample", "!.env.template", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks",
    "*.keystore", "*.kdbx", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "!id_*.pub", ".netrc", "_netrc",
    ".npmrc", ".pypirc", ".git-credentials", ".pgpass", ".my.cnf", ".htpasswd", ".s3cfg", ".boto", ".dockercfg",
    "credentials", "credentials.json", "credentials.yaml", "credentials.yml", "credentials.db", "client_secret*.json",
    "service-account*.json", "service_account*.json", "secrets.json", "secrets.yaml", "secrets.yml", "secrets.toml",
    "private.yaml", "*.tfstate", "*.tfstate.backup", ".ssh/", ".aws/", ".azure/", ".gnupg/", ".kube/",
    ".docker/",
)  # fmt: skip

_SECRETS: Final = Rules(SECRETS)


@lru_cache(maxsize=65_536)
def has_secret_name(name: str) -> bool:
    """Whether a file of this name holds secrets."""
    return bool(_SECRETS.verdict(name, name, False))


@lru_cache(maxsize=65_536)
def is_secret_folder(folder: str) -> bool:
    """Whether this folder, or one above it, is of a kind that holds secrets."""
    return any(_SECRETS.verdict(part, part, True) for part in folder.split("/"))


def is_secret(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return has_secret_name(name) or (bool(folder) and is_secret_folder(folder))
