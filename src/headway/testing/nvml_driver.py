"""A GPU driver to test against: builds `nvml_stub.c`, which has two cards, and can fail, hang and
crash. For tests.
"""

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml_stub.c")
NAME = "libnvidia-ml.so.1"


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(folder: Path) -> Path:
    """The library, built into `folder`. Needs a compiler."""
    command = compiler()
    if command is None:
        raise FileNotFoundError("no C compiler here")
    library = folder / NAME
    subprocess.run(
        [command, "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, SOURCE], check=True
    )
    return library
