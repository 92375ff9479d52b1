"""The agent as one file, `agent.pyz`, for containers and machines that do not have Headway. Called
by engines.

It holds the parts that need nothing but a standard library, Python 3.11 or newer: `python agent.pyz
shim TASK_DIR`. The same sources always give the same bytes. A copy rests in the home, named by its
content, so that an upgrade does not pull the file away under a container that runs.
"""

import hashlib
import io
import os
import threading
import zipfile
from pathlib import Path
from typing import Final

from headway.home.launch import PACKAGE

PARTS: Final = (
    "agent",
    "carrier",
    "client",
    "code",
    "home",
    "model",
    "settings",
    "spool",
    "storage",
    "wire",
)
# that the relay needs besides
FILES: Final = (
    "engines/__init__.py",
    "engines/spool/__init__.py",
    "engines/spool/task_folder.py",
    "engines/spool/cluster_folder.py",
)
PYTHON_MIN: Final = (3, 9)
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the first moment that a zip file can tell
_MAIN: Final = f"""import sys
if sys.version_info < {PYTHON_MIN}:
    text = "headway: the agent needs Python %d.%d or newer, this is %d.%d"
    sys.exit(text % ({PYTHON_MIN} + tuple(sys.version_info[:2])))
from headway.agent.main import main
main()
"""


def build() -> bytes:
    """The bytes of the file. Stored without compression: a small Python may lack zlib, and it
    starts faster.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, "__main__.py", _MAIN.encode())
        root = Path(PACKAGE)
        files = [root / "__init__.py", *(root / name for name in FILES)]
        files += [path for part in PARTS for path in (root / part).rglob("*.py")]
        for path in sorted(files):
            _add(archive, str(Path("headway") / path.relative_to(root)), path.read_bytes())
    return out.getvalue()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, data)


def cached(folder: Path) -> Path:
    """The file below `folder`, made when it is not there."""
    data = build()
    path = folder / f"agent-{hashlib.sha256(data).hexdigest()[:12]}.pyz"
    if path.is_file() and path.stat().st_size == len(data):
        return path
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # several starts may be under way
    draft = folder / f".{path.name}.{os.getpid()}.{threading.get_ident()}"
    draft.write_bytes(data)
    draft.chmod(0o644)  # a container may run as another user
    os.replace(draft, path)
    return path
