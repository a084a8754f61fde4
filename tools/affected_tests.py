"""Which tests a change touches, found by the imports of tests and source (`make test-fast`, `make pure`).

A test file reaches a module over any number of imports, also over other tests and the `conftest.py` of its folders.
Imports inside of functions count, imports for type checks only do not. The files are sorted by the number of imports
in between: the tests of a changed module come first.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
TESTS = ROOT / "tests"
UNIT = ("tests/unit", "tests/fuzz", "tests/dialogues")  # in virtual time: all of them take less than three minutes
ALWAYS = ("tests/unit/test_docs.py", "tests/unit/test_file_size.py", "tests/unit/test_public_interface.py")
EVERYTHING = ("pyproject.toml", "tests/conftest.py")  # a change of one of these touches all tests
Graph = Mapping[str, frozenset[str]]


def module_name(path: Path) -> str:
    base = SOURCE if path.is_relative_to(SOURCE) else ROOT
    parts = path.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def all_modules() -> dict[str, Path]:
    folders = (SOURCE / "ottla", TESTS, ROOT / "bench")
    return {module_name(path): path for folder in folders for path in sorted(folder.rglob("*.py"))}


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports; `from package import name` may import a module or a name of the package."""
    todo: list[ast.AST] = [ast.parse(path.read_bytes())]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            todo += node.orelse
        else:
            todo += ast.iter_child_nodes(node)


@cache
def import_graph() -> dict[str, frozenset[str]]:
    modules = all_modules()
    graph = {}
    for name, path in modules.items():
        found = {each for each in imports(path) if each in modules}
        if path.is_relative_to(TESTS):  # pytest imports the conftest of each folder above
            parts = name.split(".")
            found |= {".".join([*parts[:end], "conftest"]) for end in range(1, len(parts))} & modules.keys()
        graph[name] = frozenset(found - {name})
    return graph


def distances(changed: Iterable[str], graph: Graph) -> dict[str, int]:
    """All modules that reach a changed module, with the number of imports on the shortest way."""
    importers: dict[str, list[str]] = {}
    for name, imported in graph.items():
        for each in imported:
            importers.setdefault(each, []).append(name)
    found = dict.fromkeys(changed, 0)
    todo = deque(found)
    while todo:
        name = todo.popleft()
        for importer in importers.get(name, ()):
            if importer not in found:
                found[importer] = found[name] + 1
                todo.append(importer)
    return found


def test_files(found: Mapping[str, int], folders: Iterable[str]) -> list[str]:
    """The nearest first; files of one distance in the order of their names."""
    modules = all_modules()
    files = [(distance, str(modules[name].relative_to(ROOT))) for name, distance in found.items() if name in modules]
    inside = tuple(f"{folder}/" for folder in folders)
    return [file for _, file in sorted(files) if file.startswith(inside) and Path(file).name.startswith("test_")]


def affected_by(files: Iterable[str]) -> list[str]:
    """The unit tests that a change of these files touches, and the changed tests themselves, of any folder."""
    changed = [file for file in files if (ROOT / file).exists()]
    if any(file in EVERYTHING for file in changed):
        return list(UNIT)
    names = [module_name(ROOT / file) for file in changed if file.endswith(".py")]
    known = [name for name in names if name in all_modules()]
    found = test_files(distances(known, import_graph()), UNIT)
    itself = [file for file in changed if file.startswith("tests/") and Path(file).name.startswith("test_")]
    data = [str(Path(file).parent) for file in changed if file.startswith("tests/dialogues/") and file not in itself]
    return list(dict.fromkeys([*itself, *found, *(["tests/dialogues"] if data else []), *ALWAYS]))


def changed_files(base: str) -> list[str]:
    """Files that differ from where this branch left `base`, and new files that git does not know yet."""
    start = git("merge-base", base, "HEAD")[0]
    return [*git("diff", "--name-only", start), *git("ls-files", "--others", "--exclude-standard")]


def git(*words: str) -> list[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()  # noqa: S603, S607 (ours)


def compiled_modules() -> frozenset[str]:
    """What setup.py compiles, read without running it."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMPILED":
            return frozenset(module_name(ROOT / path) for path in ast.literal_eval(node.value))
    raise ValueError("setup.py has no list COMPILED")


def tests_of_compiled_modules() -> list[str]:
    """Unit tests that import a compiled module themselves: only these depend on how it is compiled."""
    compiled = compiled_modules()
    return test_files({name: 0 for name, imported in import_graph().items() if imported & compiled}, ["tests/unit"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="affected_tests.py", description="run the tests that a change touches")
    parser.add_argument("files", nargs="*", help="changed files; default: what differs from --base")
    parser.add_argument("--base", default="main", help="branch to compare with (default: main)")
    parser.add_argument("--compiled", action="store_true", help="list the unit tests of compiled modules instead")
    parser.add_argument("--list", action="store_true", help="list the files instead of running them")
    options, more = parser.parse_known_args()
    files = (
        tests_of_compiled_modules() if options.compiled else affected_by(options.files or changed_files(options.base))
    )
    if options.compiled or options.list:
        print("\n".join(files))
        return 0
    words = [sys.executable, "-m", "pytest", *files, "--maxfail", "5", *more]
    return subprocess.run(words, cwd=ROOT, check=False).returncode  # noqa: S603 (ours)


if __name__ == "__main__":
    sys.exit(main())
