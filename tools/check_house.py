"""Rules of the house that no linter knows; `make check` runs this. Prints what breaks them, one line each.

1. Tasks are started by base/tasks.py alone: whoever starts one by hand has nobody who notices when it dies.
2. Nothing follows `if __name__ == "__main__"`: a process that starts there would not know it yet.
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


def code_behind_the_entry(path: Path, tree: ast.Module) -> Iterator[str]:
    for before, node in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(before, ast.If) and ast.unparse(before.test) == "__name__ == '__main__'":
            yield f"{path}:{node.lineno}: the entry of a program is the last thing in its file: this comes too late"


def main() -> int:
    problems = [
        problem
        for path in sorted(SOURCE.rglob("*.py"))
        for rule in (tasks_started_by_hand, code_behind_the_entry)
        for problem in rule(path, ast.parse(path.read_text()))
    ]
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
