"""What runs inside a user's environment imports the standard library only; `import headway` loads
little.
"""

import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
STANDARD_ONLY = ("client", "agent", "spool", "model", "wire", "settings")
EXEMPT = {"headway.wire.block"}  # column blocks are made by the server

BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top != "headway":
            raise ImportError(f"{name} is not in the standard library")
sys.meta_path.insert(0, Blocked())
sys.path.insert(0, sys.argv[1])
import importlib
for name in sys.argv[2:]:
    importlib.import_module(name)
print("imported", len(sys.argv) - 2)
"""


def modules(*folders: str) -> list[str]:
    found = []
    for folder in folders:
        for path in sorted((SOURCE / "headway" / folder).rglob("*.py")):
            name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(
                ".__init__"
            )
            if name not in EXEMPT and path.stem != "__main__" and "bootstrap" not in path.parts:
                found.append(name)
    return found


def isolated(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, *arguments], capture_output=True, text=True
    )


@pytest.mark.parametrize("folder", STANDARD_ONLY)
def test_it_imports_the_standard_library_only(folder: str) -> None:
    names = modules(folder)
    assert names
    done = isolated(BLOCKED, str(SOURCE), *names)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"imported {len(names)}\n"


def test_a_third_party_import_would_be_noticed() -> None:
    done = isolated(BLOCKED, str(SOURCE), "click")
    assert "click is not in the standard library" in done.stderr


def test_import_headway_loads_no_third_party_module_and_no_other_part() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import headway; "
        "print(sorted({m.split('.')[1] for m in sys.modules if m.startswith('headway.')}), "
        "[m for m in ('asyncio', 'sqlite3', 'http.client', 'ssl', 'subprocess', 'logging') if m in sys.modules])"
    )
    done = isolated(code, str(SOURCE))
    assert done.returncode == 0, done.stderr
    parts, heavy = done.stdout.strip().split("] ")
    assert not {"views", "server", "store", "agent", "engines", "diagnose"} & set(
        parts.strip("[]'").split("', '")
    )
    assert heavy == "[]", f"slow modules are loaded at import: {heavy}"


def test_a_short_command_does_not_wait_for_slow_modules() -> None:
    """`dataclasses` brings `inspect` and `ast`: with the classes that it makes, a sixth of the
    start of `hw ls`.
    """
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import headway.views.cli.dispatch, headway.views.cli.ls; "
        "import headway.views.api.source; print(sorted({'dataclasses', 'inspect', 'http.client'} & set(sys.modules)))"
    )
    done = isolated(code, str(SOURCE))
    assert (done.stdout, done.stderr) == ("[]\n", "")
