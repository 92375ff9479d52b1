"""Images for tests, made of this machine's own files, since no registry can be asked: busybox, and
this Python.

`bare(program)` has a shell and its tools; `python(program)` has this test's Python besides, at the
path it has here.
"""

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile  # noqa: TID251  (an archive is made here, none is extracted)
import tempfile
from collections.abc import Sequence
from pathlib import Path

BARE, PYTHON = "headway-test-bare:1", "headway-test-python:1"
_TOOLS = "sh ls cat echo sleep kill true false env id pwd head tail dd mkdir rm touch stat sync yes".split()
_LEFT_OUT = re.compile(
    r"/(test|tests|idlelib|tkinter|lib2to3|ensurepip|site-packages|pydoc_data|turtledemo|__pycache__|config-[^/]*)(/|$)|\.a$"
)


def _linked(path: str) -> list[str]:
    """Shared libraries that a program loads."""
    told = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    return [word for line in told.splitlines() for word in line.split() if word.startswith("/")]


def _add(archive: tarfile.TarFile, source: str, target: str = "") -> None:
    """A file as it is; its folders are made by the import."""
    archive.add(os.path.realpath(source), (target or source).lstrip("/"), recursive=False)


def _link(archive: tarfile.TarFile, path: str, target: str) -> None:
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
    archive.addfile(entry)


def _folder(archive: tarfile.TarFile, path: str, mode: int) -> None:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    archive.addfile(entry)


def _rootfs(busybox: str, with_python: bool) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, mode in (
            ("tmp", 0o1777),
            ("bin", 0o755),
            ("etc", 0o755),
            ("proc", 0o755),
            ("dev", 0o755),
        ):
            _folder(archive, name, mode)
        _add(archive, busybox, "bin/busybox")
        for tool in _TOOLS:
            _link(archive, f"bin/{tool}", "busybox")
        if with_python:
            _add_python(archive)
    return out.getvalue()


def _add_python(archive: tarfile.TarFile) -> None:
    base, program = Path(sys.base_prefix), os.path.realpath(sys.executable)
    library = base / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    files = [
        str(p)
        for p in library.rglob("*")
        if p.is_file() and not _LEFT_OUT.search(str(p)[len(str(library)) :])
    ]
    extensions = [name for name in files if ".so" in name and not name.endswith(".py")]
    for name in [
        program,
        *files,
        *sorted({lib for path in [program, *extensions] for lib in _linked(path)}),
    ]:
        _add(archive, name)
    _link(archive, "bin/python3", program)
    if sys.executable != program:  # tests name the Python of their virtual environment
        _link(archive, sys.executable, program)


def make(program: Sequence[str], busybox: str, tag: str) -> str:
    """Import the image, unless it is there."""
    known = subprocess.run([*program, "image", "inspect", tag], capture_output=True, check=False)
    if known.returncode != 0:
        path = _cached(busybox, with_python=tag == PYTHON)
        subprocess.run([*program, "import", str(path), tag], check=True, capture_output=True)
    return tag


def _cached(busybox: str, with_python: bool) -> Path:
    """The files of an image, kept between runs: collecting them takes some seconds."""
    kind = (
        f"{sys.executable}-{os.path.realpath(sys.executable)}-{sys.version}"
        if with_python
        else "bare"
    )
    name = f"headway-test-{os.getuid()}-{hashlib.sha256(kind.encode()).hexdigest()[:12]}.tar"
    path = Path(tempfile.gettempdir()) / name
    if not path.exists() or path.stat().st_uid != os.getuid():
        draft = path.with_name(f"{name}.{os.getpid()}")
        draft.write_bytes(_rootfs(busybox, with_python))
        os.replace(draft, path)
    return path
