"""One-line mutants of the source, and the tests that find them: `.venv/bin/python tools/mutants.py run`.

The draw is stable: each possible mutant has a rank, a hash of the seed, its file, its function and its text. Every
package gives its lowest ranks, as many as its share of all statements. So a change elsewhere does not change the draw,
and the next rank of the same package replaces a mutant whose line was deleted.

1. `draw` prints the mutants.
2. `run` puts one mutant at a time into a copy of the source, runs tests as plain Python until the first failure, and
   appends the verdict to `verdicts.jsonl`. Started again, it leaves out mutants with a verdict. These are the unit test
   files with the fewest imports between them and the mutant.
3. `map` runs the unit tests, dialogues and simulations once and notes which test runs the lines of mutants that were
   not found (tools/mutants_plugin.py). A line outside of functions belongs to all tests that call a function of its
   file.
4. `again` runs these mutants with the tests of the map.
5. `report` counts the verdicts and lists the mutants that no test found.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from affected_tests import UNIT, distances, import_graph, module_name, test_files

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
TESTS = ("tests/unit", "tests/dialogues", "tests/simulation")
HUNTS = "not planted_bug and not every_process"  # these tests run the source in processes of their own
SECONDS_MAX = 180  # a multiple of it on a busy machine: --seconds
NEAREST = (4, 16)  # test files; most mutants are found by the first few
TESTS_AT_LEAST = 3  # so often the longest test fits into the time of a mutant
COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
LOGGERS = ("logger.", "log.", "self._logger.", "LOGGER.", "warnings.warn")  # the tests do not promise all log lines


class Mutant(NamedTuple):
    """One changed line. `first` to `last` are the lines of its statement, which a test must run to find it."""

    file: str  # below src
    function: str  # empty outside of functions
    kind: str
    line: int
    first: int
    last: int
    before: str
    after: str

    @property
    def package(self) -> str:
        return self.file.split("/")[1].removesuffix(".py")

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line} {self.kind}: {self.before.strip()}  ->  {self.after.strip()}"

    def rank(self, seed: int) -> str:
        identity = (seed, self.file, self.function, self.kind, self.before.strip(), self.after.strip())
        return hashlib.sha256(repr(identity).encode()).hexdigest()


class Finder:
    """All mutants of one file."""

    def __init__(self, path: Path) -> None:
        text = path.read_text()
        self.tree = ast.parse(text)
        self._file = str(path.relative_to(SOURCE))
        self._lines = text.splitlines()
        self._function = ""
        self._span = (0, 0)
        self._found: list[Mutant] = []

    def find(self) -> list[Mutant]:
        self._statements(self.tree.body)
        return self._found

    def _statements(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            before = self._function
            self._function = f"{before}.{node.name}" if before else node.name
            if node.name != "__repr__":
                self._statements(node.body)
            self._function = before
            return
        text = self._lines[node.lineno - 1].strip()
        is_type_check = isinstance(node, ast.If) and text.endswith("TYPE_CHECKING:")
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Raise | ast.Assert) or is_type_check:
            return  # a failing import is not a mutant, and the texts of errors are free
        blocks = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
        last = min((child.lineno for child in blocks), default=(node.end_lineno or node.lineno) + 1) - 1
        self._span = (node.lineno, max(last, node.lineno))
        self._simple(node)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self._statement(child)
            elif isinstance(child, ast.ExceptHandler | ast.match_case):
                self._statements(child.body)

    def _simple(self, node: ast.stmt) -> None:
        text = self._lines[node.lineno - 1].strip()
        if isinstance(node, ast.Expr) and (isinstance(node.value, ast.Constant) or text.startswith(LOGGERS)):
            return  # docstrings and log lines
        if isinstance(node, ast.Return) and node.value and not isinstance(node.value, ast.Constant):
            self._replace(node.value, "None", "return dropped")
        is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        is_attribute = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute)
        if self._function and (is_call or is_attribute):
            self._replace(node, "pass", "statement dropped")
        if isinstance(node, ast.If | ast.While):
            self._negate(node.test)
        skipped = {node.annotation} if isinstance(node, ast.AnnAssign) else set()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr) and child not in skipped:
                self._expression(child)

    def _expression(self, top: ast.expr) -> None:
        for node in ast.walk(top):
            if isinstance(node, ast.Compare) and len(node.ops) == 1:
                self._between(node.left, node.comparators[0], *COMPARISONS[type(node.ops[0])], "comparison")
            elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
                self._between(node.left, node.right, *ARITHMETIC[type(node.op)], "operator")
            elif isinstance(node, ast.BoolOp):
                words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                self._between(node.values[0], node.values[1], *words, "and/or")
            elif isinstance(node, ast.IfExp):
                self._negate(node.test)
            elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
                self._replace(node, repr(not node.value), "constant")
            elif isinstance(node, ast.Constant) and isinstance(node.value, int):
                self._replace(node, repr(node.value + 1), "constant")
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") != "isinstance":
                self._swap(node)

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare):  # a comparison is flipped instead
            self._replace(test, f"(not ({ast.get_source_segment(chr(10).join(self._lines), test)}))", "negation")

    def _swap(self, call: ast.Call) -> None:
        """Only arguments of one form: swapped ones of different types fail at once in any test."""
        if (
            len(call.args) >= 2
            and type(call.args[0]) is type(call.args[1])
            and not isinstance(call.args[0], ast.Starred)
        ):
            first, second = call.args[:2]
            text = self._bytes(first.lineno)
            parts = [text[each.col_offset : each.end_col_offset] for each in (first, second)]
            if first.lineno == second.end_lineno and parts[0] != parts[1]:
                middle = text[first.end_col_offset : second.col_offset]
                new = parts[1] + middle + parts[0]
                after = text[: first.col_offset] + new + text[second.end_col_offset :]
                self._add(first.lineno, after.decode(), "arguments swapped")

    def _between(self, left: ast.expr, right: ast.expr, old: str, new: str, kind: str) -> None:
        if left.end_lineno == right.lineno:
            text = self._bytes(right.lineno)
            middle = text[left.end_col_offset : right.col_offset]
            if middle.count(old.encode()) == 1:
                changed = middle.replace(old.encode(), new.encode())
                after = text[: left.end_col_offset] + changed + text[right.col_offset :]
                self._add(right.lineno, after.decode(), kind)

    def _replace(self, node: ast.expr | ast.stmt, new: str, kind: str) -> None:
        if node.lineno == node.end_lineno:
            text = self._bytes(node.lineno)
            after = text[: node.col_offset] + new.encode() + text[node.end_col_offset :]
            self._add(node.lineno, after.decode(), kind)

    def _add(self, line: int, after: str, kind: str) -> None:
        before = self._lines[line - 1]
        self._found.append(Mutant(self._file, self._function, kind, line, *self._span, before, after))

    def _bytes(self, line: int) -> bytes:
        return self._lines[line - 1].encode()


def can_be_compiled(mutant: Mutant) -> bool:
    """A part of an f-string, for example, has no place of its own in Python 3.11."""
    try:
        compile(mutated_text(mutant), mutant.file, "exec")
    except SyntaxError:
        return False
    return mutant.before != mutant.after


def mutated_text(mutant: Mutant) -> str:
    lines = (SOURCE / mutant.file).read_text().splitlines(keepends=True)
    lines[mutant.line - 1] = mutant.after + "\n"
    return "".join(lines)


def draw(seed: int, count: int) -> list[Mutant]:
    """`count` mutants; each package has its share by statements, and at least one."""
    by_package: defaultdict[str, set[Mutant]] = defaultdict(set)
    statements: Counter[str] = Counter()
    for path in sorted(SOURCE.rglob("*.py")):
        finder = Finder(path)
        for mutant in finder.find():
            by_package[mutant.package].add(mutant)
        package = path.relative_to(SOURCE).parts[1].removesuffix(".py")
        statements[package] += sum(isinstance(node, ast.stmt) for node in ast.walk(finder.tree))
    total = sum(statements[package] for package in by_package)
    chosen: list[Mutant] = []
    for package in sorted(by_package):
        share = max(1, round(count * statements[package] / total))
        ranked = sorted(by_package[package], key=lambda mutant: mutant.rank(seed))
        chosen += first_of_each_line(ranked, share)
    return sorted(chosen, key=lambda mutant: mutant.rank(seed))


def first_of_each_line(ranked: Sequence[Mutant], share: int) -> Iterator[Mutant]:
    seen: set[tuple[str, int]] = set()
    for mutant in ranked:
        if len(seen) < share and (mutant.file, mutant.line) not in seen and can_be_compiled(mutant):
            seen.add((mutant.file, mutant.line))
            yield mutant


def environment_for(source: Path, **more: str) -> dict[str, str]:
    paths = os.pathsep.join([str(source), str(ROOT / "tools")])
    return {**os.environ, "PYTHONPATH": paths, "OTTLA_PURE": "1", **more}


def map_lines(mutants: Sequence[Mutant], folder: Path, tests: Sequence[str], more: Sequence[str]) -> None:
    """Run all tests once, and write which of them run which mutant."""
    wanted = folder / "mutants.json"
    wanted.write_text(json.dumps([mutant._asdict() for mutant in mutants], indent=1))
    for old in folder.glob("tests-*.json"):
        old.unlink()
    words = [*tests, "-q", "-p", "mutants_plugin", "-p", "no:cacheprovider", "-k", HUNTS, "--dist", "loadfile", *more]
    environment = environment_for(SOURCE, OTTLA_MUTANTS=str(wanted))
    subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, env=environment, check=False)  # noqa: S603 (ours)
    found: defaultdict[str, set[str]] = defaultdict(set)
    for file in folder.glob("tests-*.json"):
        for name, running in json.loads(file.read_text()).items():
            found[name].update(running)
    (folder / "map.json").write_text(json.dumps({name: sorted(tests) for name, tests in found.items()}, indent=1))


def nearest_tests(mutant: Mutant) -> list[list[str]]:
    """In two parts: the second one runs if the first finds nothing."""
    found = distances([module_name(SOURCE / mutant.file)], import_graph())
    files = in_order(mutant, test_files(found, UNIT)[: NEAREST[1]])
    return [part for part in (files[: NEAREST[0]], files[NEAREST[0] :]) if part]


def mapped_tests(mutant: Mutant, tests: dict[str, list[str]]) -> list[list[str]]:
    found = in_order(mutant, tests.get(mutant.name, []))
    return [found] if found else []


def run_all(
    mutants: Sequence[Mutant], folder: Path, tests_of: Callable[[Mutant], list[list[str]]], seconds_max: int
) -> None:
    with tempfile.TemporaryDirectory(prefix="ottla-mutants-") as place:
        copy = Path(place) / "src"
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("*.so", "*.egg-info"))
        for mutant in mutants:
            verdict = run_one(mutant, tests_of(mutant), copy, seconds_max)
            print(f"{verdict['verdict']:9} {verdict['seconds']:6.1f} s {mutant.name}", flush=True)
            with (folder / "verdicts.jsonl").open("a") as file:
                file.write(json.dumps(verdict) + "\n")


def run_one(mutant: Mutant, parts: list[list[str]], copy: Path, seconds_max: int) -> dict[str, Any]:
    begin = time.monotonic()
    verdict, found_by = "no test", ""
    original = (copy / mutant.file).read_text()
    (copy / mutant.file).write_text(mutated_text(mutant))
    try:
        for tests in parts:
            verdict, found_by = run_tests(tests, copy, seconds_max)
            if verdict == "found":
                break
    finally:
        (copy / mutant.file).write_text(original)
    seconds = round(time.monotonic() - begin, 1)
    shown = {"name": mutant.name, "verdict": verdict, "found_by": found_by, "tests": sum(map(len, parts))}
    shown["seconds"] = seconds
    return {**shown, "package": mutant.package}


def in_order(mutant: Mutant, tests: list[str]) -> list[str]:
    """Tests of the same package first, simulations last."""
    own = f"tests/unit/{mutant.package}/"
    stem = Path(mutant.file).stem
    return sorted(tests, key=lambda test: (stem not in test, not test.startswith(own), "simulation" in test))


def run_tests(tests: list[str], copy: Path, seconds_max: int) -> tuple[str, str]:
    place = copy.parent
    environment = environment_for(copy)
    if "::" in tests[0]:
        (place / "tests.json").write_text(json.dumps(tests))
        environment["OTTLA_MUTANT_TESTS"] = str(place / "tests.json")
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    words = [
        *files,
        "-q",
        "-x",
        "-p",
        "mutants_plugin",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-p",
        "no:randomly",
    ]
    words += ["--timeout", str(seconds_max // TESTS_AT_LEAST), "--tb", "no", "--basetemp", str(place / "tmp")]
    process = subprocess.Popen(  # noqa: S603 (ours)
        [sys.executable, "-m", "pytest", *words],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "time out", ""
    failed = next((line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
    return ("survived" if process.returncode == 0 else "found"), failed[:200] or f"exit code {process.returncode}"


def read_verdicts(folder: Path) -> list[dict[str, Any]]:
    verdicts = folder / "verdicts.jsonl"
    return [json.loads(line) for line in verdicts.read_text().splitlines()] if verdicts.exists() else []


def report(folder: Path) -> None:
    verdicts = {each["name"]: each for each in read_verdicts(folder)}.values()  # the last one of each mutant
    print(dict(Counter(each["verdict"] for each in verdicts)))
    for each in verdicts:
        if each["verdict"] != "found":
            print(f"{each['verdict']}: {each['name']} ({each['tests']} tests)")


def main() -> None:
    parser = argparse.ArgumentParser(prog="mutants.py", description="one-line mutants, and the tests that find them")
    parser.add_argument("action", choices=("draw", "run", "map", "again", "report"))
    parser.add_argument("--seed", type=int, default=30)
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutants", help="for the map and the verdicts")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="folders of tests that `map` runs")
    parser.add_argument("--seconds", type=int, default=SECONDS_MAX, help="for the tests of one mutant")
    parser.add_argument("--part", default="0/1", help="1/2: each second mutant, beginning with the second")
    options, more = parser.parse_known_args()  # the rest is for pytest, `-n 2` for example
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    mutants = draw(options.seed, options.count)
    if options.action == "draw":
        print("\n".join(mutant.name for mutant in mutants))
    part, parts = map(int, options.part.split("/"))
    verdicts = {each["name"]: each["verdict"] for each in read_verdicts(folder)}
    not_found = [mutant for mutant in mutants if verdicts.get(mutant.name, "found") != "found"]
    if options.action == "run":
        rest = [mutant for mutant in mutants if mutant.name not in verdicts]
        run_all(rest[part::parts], folder, nearest_tests, options.seconds)
    if options.action == "map":
        map_lines(not_found, folder, options.tests, more)
    if options.action == "again":
        tests = json.loads((folder / "map.json").read_text())
        run_all(not_found[part::parts], folder, partial(mapped_tests, tests=tests), options.seconds)
    if options.action == "report":
        report(folder)


if __name__ == "__main__":
    main()
