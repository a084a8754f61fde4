"""All disk writes of storage go through the files module."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ottla.storage

PACKAGE = Path(ottla.storage.__file__).parent
DOOR = PACKAGE / "files.py"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != DOOR)
HARMLESS = {
    *("close", "dup", "lseek", "fsencode", "fspath", "getpid", "cpu_count", "sched_yield", "nice", "set_blocking"),
    *("pread", "preadv", "read", "fstat", "stat", "lstat", "scandir", "listdir", "statvfs", "path", "environ"),
    *("strerror", "posix_fadvise", "posix_fallocate", "sysconf", "sched_setscheduler", "sched_param", "setpriority"),
}


def calls(path: Path) -> list[tuple[str, str, int]]:
    """Module, function and line of each call of the form module.function()."""
    tree = ast.parse(path.read_text())
    return [
        (node.func.value.id, node.func.attr, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_all_disk_writes_go_through_the_files_module(path: Path) -> None:
    allowed = {*HARMLESS, "write", "dup2"} if path.name == "process.py" else HARMLESS  # its pipes are no disk
    around = [
        f"{module}.{function}() in line {line}"
        for module, function, line in calls(path)
        if module == "shutil" or (module == "os" and function not in allowed)
    ]
    opened = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
    ]
    assert not around
    assert not opened


def test_the_files_module_has_replaceable_functions() -> None:
    body = ast.parse(DOOR.read_text()).body
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    names |= {node.name for node in body if isinstance(node, ast.FunctionDef)}
    wanted = {"write_at", "sync", "rename", "unlink", "link", "make_directory", "make_directories", "remove_tree"}
    assert wanted <= names
