"""Source files and functions stay short."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "ottla"
LINES_MAX = 800
FUNCTION_LINES_MAX = 60
# Inner loops of compiled files: a call per field would cost more than the work in it.
LONG_FUNCTIONS = {"protocol/records.py::walk_records", "protocol/record_columns.py::add"}


def test_a_source_file_has_at_most_800_lines() -> None:
    sizes = {path.relative_to(SOURCE): path.read_text().count("\n") for path in SOURCE.rglob("*.py")}
    too_long = {str(path): size for path, size in sizes.items() if size > LINES_MAX}
    assert not too_long, f"split these files: each has more than {LINES_MAX} lines"


def test_a_function_has_at_most_60_lines() -> None:
    found = {f"{path.relative_to(SOURCE)}::{name}" for path in SOURCE.rglob("*.py") for name in long_functions(path)}
    assert found <= LONG_FUNCTIONS, f"split these functions: each has more than {FUNCTION_LINES_MAX} lines"
    assert found >= LONG_FUNCTIONS, "these functions are short now: remove them from LONG_FUNCTIONS"


def long_functions(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX:
            yield node.name
