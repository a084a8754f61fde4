"""A pytest plug-in of tools/mutants.py: notes which test runs the line of a mutant, or runs only chosen tests.

Tracing is limited to the functions that hold a mutant: for all other functions Python calls this plug-in once per call.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

MUTANTS = os.environ.get("OTTLA_MUTANTS")
CHOSEN = os.environ.get("OTTLA_MUTANT_TESTS")


class LineTests:
    """The tests that run the statement of each mutant."""

    def __init__(self, mutants: list[dict[str, Any]]) -> None:
        self._by_file: defaultdict[str, list[tuple[str, range | None]]] = defaultdict(list)
        for each in mutants:
            lines = range(each["first"], each["last"] + 1) if each["function"] else None
            short = f"{each['file']}:{each['line']} {each['kind']}"
            name = f"{short}: {each['before'].strip()}  ->  {each['after'].strip()}"
            self._by_file[each["file"]].append((name, lines))
        self._codes: dict[int, tuple[CodeType, dict[int, list[str]], list[str]]] = {}  # the code keeps its id taken
        self.test = ""
        self.found: defaultdict[str, set[str]] = defaultdict(set)

    def calls(self, frame: FrameType, _event: str, _argument: object) -> Any:
        entry = self._codes.get(id(frame.f_code))
        if entry is None:
            entry = self._codes[id(frame.f_code)] = self._look(frame.f_code)
        _, lines, whole_file = entry
        for name in whole_file:
            self.found[name].add(self.test)
        return self.lines if lines else None

    def lines(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            for name in self._codes[id(frame.f_code)][1].get(frame.f_lineno, ()):
                self.found[name].add(self.test)
        return self.lines

    def _look(self, code: CodeType) -> tuple[CodeType, dict[int, list[str]], list[str]]:
        mutants = self._by_file.get(code.co_filename.rpartition("/src/")[2], [])
        lines: defaultdict[int, list[str]] = defaultdict(list)
        own = {line for _, _, line in code.co_lines() if line}
        for name, span in mutants:
            for line in own.intersection(span or ()):
                lines[line].append(name)
        is_function = code.co_name != "<module>"
        return code, dict(lines), [name for name, span in mutants if span is None and is_function]


TRACER = LineTests(json.loads(Path(MUTANTS).read_text())) if MUTANTS else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    if TRACER is None:
        return (yield)
    TRACER.test = item.nodeid
    threading.settrace(TRACER.calls)
    sys.settrace(TRACER.calls)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]  # typeshed lacks None


def pytest_sessionfinish() -> None:
    if TRACER is not None and MUTANTS is not None:
        found = {name: sorted(tests) for name, tests in TRACER.found.items()}
        (Path(MUTANTS).parent / f"tests-{os.getpid()}.json").write_text(json.dumps(found))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only the chosen tests, in the order in which they are listed."""
    if CHOSEN:
        place = {name: number for number, name in enumerate(json.loads(Path(CHOSEN).read_text()))}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in place])
        items[:] = sorted((item for item in items if item.nodeid in place), key=lambda item: place[item.nodeid])
