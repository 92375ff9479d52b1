"""Figures of the source tree, as `docs/concepts/house.md` shows them: run it and compare.

.venv/bin/python tools/house.py [FOLDER]
"""

import ast
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

BRANCHES = (
    ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.comprehension, ast.BoolOp,
    ast.match_case,
)  # fmt: skip
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def main(folder: Path) -> int:
    sources = {path: path.read_text() for path in sorted(folder.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in sources.items()}
    lines = [line for text in sources.values() for line in text.splitlines()]
    thousands = len(lines) / 1000
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    functions = [node for node in nodes if isinstance(node, FUNCTIONS)]
    lengths = sorted(length(node) for node in functions)
    tangled = [node for node in functions if branches(node) >= 10]
    everything = "\n".join(sources.values())
    choices = [node for node in nodes if isinstance(node, ast.IfExp)]
    handlers = [node for node in nodes if isinstance(node, ast.ExceptHandler)]
    rows = {
        "files / lines": f"{len(sources)} / {len(lines)}",
        "files of at most 60 lines": sum(text.count("\n") <= 60 for text in sources.values()),
        "function median / p95 / longest": (
            f"{statistics.median(lengths):.0f} / {lengths[int(len(lengths) * 0.95)]} / {lengths[-1]}"
        ),
        "private functions used exactly once, per 1,000 lines": round(
            used_once(functions, everything) / thousands, 1
        ),
        "median complexity per line, of functions with 10 or more branches": round(
            statistics.median(branches(node) / length(node) for node in tangled), 2
        ),
        "10 or more branches packed into at most 20 lines": sum(
            length(node) <= 20 for node in tangled
        ),
        "conditional expressions / tuple assignments per 1,000 lines": (
            f"{len(choices) / thousands:.1f} / {sum(map(is_tuple, nodes)) / thousands:.1f}"
        ),
        "nested conditional expressions": sum(
            isinstance(part, ast.IfExp) for node in choices for part in (node.body, node.orelse)
        ),
        "lines over 100 characters": f"{sum(len(line) > 100 for line in lines) / len(lines):.1%}",
        "the word `Any` per 1,000 lines": round(
            len(re.findall(r"\bAny\b", everything)) / thousands, 1
        ),
        "blanket handlers": f"{sum(map(is_blanket, handlers)) / len(handlers):.0%}",
        "base names that stand more than once": ", ".join(sorted(twice(sources, folder))),
    }
    for name, value in rows.items():
        print(f"| {name} | {value} |")
    return 0


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def branches(node: ast.AST) -> int:
    return sum(isinstance(child, BRANCHES) for child in ast.walk(node))


def used_once(functions: list[ast.FunctionDef | ast.AsyncFunctionDef], text: str) -> int:
    private = {node.name for node in functions if re.match(r"_[a-z]", node.name)}
    counts = Counter(re.findall(r"\b_[a-z]\w*", text))
    return sum(counts[name] == 2 for name in private)  # where it is made, and where it is used


def is_tuple(node: ast.AST) -> bool:
    """`a, b = 1, 2`: two things that have nothing to do with each other."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
    )


def is_blanket(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or getattr(handler.type, "id", "") in {"Exception", "BaseException"}


def twice(sources: dict[Path, str], folder: Path) -> Iterator[str]:
    names = Counter(
        path.stem
        for path in sources
        if path.name != "__init__.py" and not {"cli", "api"} & set(path.relative_to(folder).parts)
    )
    return (name for name, count in names.items() if count > 1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "src/headway")))
