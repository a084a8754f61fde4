"""Rules of this project that linters do not check; `make check` runs this. Prints one line for each violation.

1. Only base/tasks.py starts tasks: the failure of a task that is started directly may go unnoticed.
2. Nothing follows `if __name__ == "__main__"`: code after it is not defined yet when the program starts.
3. Only base/regular_expressions.py compiles patterns from outside: it bounds their cost. Other modules use `re` with
   patterns that are written in the source, and escape the texts in them.
4. `__repr__` starts with the name of its class: logs and assertions would name a class that does not exist.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "ottla"
TASKS = SOURCE / "base" / "tasks.py"
STARTERS = ("create_task", "ensure_future")
PATTERNS = SOURCE / "base" / "regular_expressions.py"
PATTERN_CALLS = frozenset({"compile", "match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer"})
PATTERN_ENGINES = frozenset({"re2", "_re2", "regex", "sre_compile"})


def tasks_started_directly(path: Path, tree: ast.AST) -> Iterator[str]:
    if path == TASKS:
        return
    for node in ast.walk(tree):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name in STARTERS:
            yield f"{path}:{node.lineno}: {name}: start tasks with ottla.base.tasks, which reports failures"


def code_after_the_main_block(path: Path, tree: ast.Module) -> Iterator[str]:
    for before, node in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(before, ast.If) and ast.unparse(before.test) == "__name__ == '__main__'":
            yield f"{path}:{node.lineno}: the `__main__` block must be the last statement of a file"


def patterns_from_outside(path: Path, tree: ast.AST) -> Iterator[str]:
    if path == PATTERNS:
        return
    for node in ast.walk(tree):
        names = {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
        names |= {node.module or ""} if isinstance(node, ast.ImportFrom) else set()
        if names & PATTERN_ENGINES:
            yield f"{path}:{node.lineno}: compile patterns with ottla.base.regular_expressions"
        if isinstance(node, ast.ImportFrom) and node.module == "re":
            yield f"{path}:{node.lineno}: import re and call re.compile, so that this check finds the call"
        if isinstance(node, ast.Call) and _is_pattern_call(node.func) and not _is_literal(_pattern_of(node)):
            yield f"{path}:{node.lineno}: compile patterns from outside with ottla.base.regular_expressions"


def _is_pattern_call(function: ast.expr) -> bool:
    if not isinstance(function, ast.Attribute) or function.attr not in PATTERN_CALLS:
        return False
    return isinstance(function.value, ast.Name) and function.value.id == "re"


def _pattern_of(call: ast.Call) -> ast.expr | None:
    named = (keyword.value for keyword in call.keywords if keyword.arg == "pattern")
    return call.args[0] if call.args else next(named, None)


def _is_literal(pattern: ast.expr | None) -> bool:
    """Whether a pattern consists of literals, constants and escaped texts."""
    match pattern:
        case ast.Constant():
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper()
        case ast.JoinedStr(values=parts):
            return all(_is_literal(part) for part in parts)
        case ast.FormattedValue(value=value):
            return _is_literal(value)
        case ast.BinOp(left=left, right=right):
            return _is_literal(left) and _is_literal(right)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr="escape")):
            return True
        case ast.Call(func=ast.Attribute(value=text, attr="join" | "replace"), args=arguments):
            return _is_literal(text) and all(_is_literal(each) for each in arguments)
    return False


def names_of_other_classes(path: Path, tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for method in node.body:
            if not (isinstance(method, ast.FunctionDef) and method.name == "__repr__"):
                continue
            for name in re.findall(r"return f?['\"]<?([A-Za-z_]+)[( ]", ast.unparse(method)):
                if name.lstrip("_") != node.name.lstrip("_"):
                    yield f"{path}:{method.lineno}: {node.name} calls itself {name} in __repr__"


RULES = (tasks_started_directly, code_after_the_main_block, patterns_from_outside, names_of_other_classes)


def main() -> int:
    problems = [
        problem
        for path in sorted(SOURCE.rglob("*.py"))
        for rule in RULES
        for problem in rule(path, ast.parse(path.read_text()))
    ]
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
