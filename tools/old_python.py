"""Keeps what is newer than Python 3.9 out of the modules that live in a job's own Python: client, agent, spool, and
whatever of Headway they import. Called by `make check`; `--list` prints the files.

The server and the command line need 3.11. A job's Python is the user's.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

OLDEST = (3, 9)
ROOTS = ("client", "agent", "spool")
SOURCE = Path(__file__).resolve().parents[1] / "src" / "headway"
# imported where it is there, with an answer for where it is not
GUARDED = {("client/config_file.py", "tomllib")}
NEWER_NAMES = {
    "enum": {"StrEnum"},
    "itertools": {"pairwise", "batched"},
    "typing": {"Self", "TypeAlias", "ParamSpec", "assert_never", "Never", "override"},
    "datetime": {"UTC"},
    "types": {"UnionType", "NoneType"},
    "contextlib": {"chdir", "aclosing"},
}
NEWER_MODULES = {"tomllib", "asyncio.taskgroups"}
NEWER_ATTRIBUTES = {
    ("sys", "orig_argv"),
    ("sys", "stdlib_module_names"),
    ("hashlib", "file_digest"),
}


def main() -> int:
    files = sorted(closure())
    if sys.argv[1:] == ["--list"]:
        print("\n".join(str(file.relative_to(SOURCE)) for file in files))
        return 0
    faults = [fault for file in files for fault in check(file)]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def closure() -> set[Path]:
    waiting = [path for root in ROOTS for path in (SOURCE / root).rglob("*.py")]
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        waiting += [near for near in imported(path) if near not in found]
    return found


def imported(path: Path) -> Iterator[Path]:
    """Modules of Headway that it imports, at its top or later; not those for types alone."""
    for node in walk_run(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("headway"):
            yield from located(node.module)
            for name in node.names:
                yield from located(f"{node.module}.{name.name}")
        elif isinstance(node, ast.Import):
            for name in node.names:
                yield from located(name.name)


def located(module: str) -> Iterator[Path]:
    parts = module.split(".")
    if parts[0] != "headway":
        return
    for end in range(1, len(parts) + 1):
        folder = SOURCE.joinpath(*parts[1:end])
        for path in (folder.with_suffix(".py"), folder / "__init__.py"):
            if end > 1 and path.is_file():
                yield path


def walk_run(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs: not what stands below `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for rest in node.orelse:
                yield rest
                yield from walk_run(rest)
            continue
        yield node
        yield from walk_run(node)


def check(path: Path) -> Iterator[str]:
    text, name = path.read_text(), path.relative_to(SOURCE).as_posix()
    if path.name == "sitecustomize.py":  # Python 2.7 reads it, too
        if ": str" in text or "->" in text or 'f"' in text:
            yield f"src/headway/{name}:1: has to be read by Python 2.7: no annotation, no f-string"
        return
    try:
        tree = ast.parse(text, feature_version=OLDEST)
    except SyntaxError as error:
        yield f"src/headway/{name}:{error.lineno}: newer than Python {OLDEST[0]}.{OLDEST[1]}: {error.msg}"
        return
    nodes = list(walk_run(tree))
    annotated = any(
        (isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and (n.returns or n.args.args))
        or isinstance(n, ast.AnnAssign)
        for n in nodes
    )
    if annotated and "from __future__ import annotations" not in text:
        yield f"src/headway/{name}:1: needs `from __future__ import annotations` for Python 3.9"
    for node in nodes:
        what = newer(node, name)
        if what:
            yield f"src/headway/{name}:{getattr(node, 'lineno', 1)}: {what} is newer than Python 3.9"


def newer(node: ast.AST, file: str) -> str | None:
    if isinstance(node, ast.Match):
        return "match"
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
        names = [n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)]
        classes = [name for name in names if name[0].isupper() and not name.isupper()]
        if isinstance(node.value.op, ast.BitOr) and classes:
            return "X | Y of classes"
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        names = {one.name for one in node.names} & NEWER_NAMES.get(node.module or "", set())
        if names:
            return f"{node.module}.{names.pop()}"
    if isinstance(node, ast.Import):
        modules = {one.name for one in node.names} & NEWER_MODULES
        if modules and not any((file, module) in GUARDED for module in modules):
            return modules.pop()
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        pair = node.value.id, node.attr
        if pair in NEWER_ATTRIBUTES:
            return ".".join(pair)
    if isinstance(node, ast.Call):
        words = {keyword.arg for keyword in node.keywords}
        called = ast.unparse(node.func)
        if called == "zip" and "strict" in words:
            return "zip(strict=…)"
        if called == "dataclass" and words & {"slots", "kw_only"}:
            return "dataclass(slots=…)"
        if called in ("isinstance", "issubclass") and isinstance(node.args[1], ast.BinOp):
            return "isinstance(…, X | Y)"
    return None


if __name__ == "__main__":
    sys.exit(main())
