"""Rules of the house that no linter knows; `make check` runs this. Prints what breaks them, one line each.

1. Tasks are started by base/tasks.py alone: whoever starts one by hand has nobody who notices when it dies.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "ottla"
TASKS = SOURCE / "base" / "tasks.py"
STARTERS = ("create_task", "ensure_future")


def tasks_started_by_hand(path: Path, tree: ast.AST) -> Iterator[str]:
    if path == TASKS:
        return
    for node in ast.walk(tree):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name in STARTERS:
            yield f"{path}:{node.lineno}: {name}: start tasks with ottla.base.tasks, so that somebody notices their end"


def main() -> int:
    problems = [
        problem
        for path in sorted(SOURCE.rglob("*.py"))
        for problem in tasks_started_by_hand(path, ast.parse(path.read_text()))
    ]
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
