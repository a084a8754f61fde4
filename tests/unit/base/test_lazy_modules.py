"""Modules that are loaded when they are used."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.lazy_modules import is_loaded, make_lazy

NAME = "late_example"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the module is looked for; nothing of it stays."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    importlib.invalidate_caches()
    make_lazy(frozenset({NAME, f"{NAME}.inner"}))
    yield tmp_path
    for name in (NAME, f"{NAME}.inner"):
        sys.modules.pop(name, None)


def test_an_import_loads_nothing_and_a_look_inside_does(folder: Path) -> None:
    (folder / f"{NAME}.py").write_text("import late_example\nanswer = 42\n__all__ = ['answer']\n")
    module = importlib.import_module(NAME)
    assert importlib.import_module(NAME) is module
    assert not is_loaded(NAME)
    assert module.answer == 42
    assert is_loaded(NAME)
    assert type(module) is type(sys)
    assert module is sys.modules[NAME]


def test_a_name_of_it_and_all_names_of_it_load_it(folder: Path) -> None:
    (folder / f"{NAME}.py").write_text("answer = 42\nhidden = 1\n__all__ = ['answer']\n")
    names: dict[str, object] = {}
    exec(f"from {NAME} import *", names)
    assert (names["answer"], "hidden" in names) == (42, False)


def test_a_module_inside_a_package_is_late_by_itself(folder: Path) -> None:
    package = folder / NAME
    package.mkdir()
    (package / "__init__.py").write_text("from . import inner\nouter = 1\n")
    (package / "inner.py").write_text("answer = 42\n")
    assert importlib.import_module(NAME).outer == 1
    assert is_loaded(NAME)
    assert not is_loaded(f"{NAME}.inner")
    assert importlib.import_module(NAME).inner.answer == 42


def test_what_is_set_from_outside_wins_over_what_it_sets_itself(folder: Path) -> None:
    (folder / f"{NAME}.py").write_text("answer = 42\n")
    module = importlib.import_module(NAME)
    module.answer = 7  # type: ignore[attr-defined]
    assert module.answer == 7


def test_one_that_fails_is_tried_again(folder: Path) -> None:
    (folder / f"{NAME}.py").write_text("raise OSError('too many open files')\n")
    module = importlib.import_module(NAME)
    with pytest.raises(OSError, match="too many open files"):
        _ = module.answer
    (folder / f"{NAME}.py").write_text("answer = 42\n")
    assert module.answer == 42


def test_another_thread_waits_until_a_lazy_module_is_loaded(folder: Path) -> None:
    """The first thread is held in the middle of the module until the second one is at its door."""
    text = "import late_gate\nlate_gate.inside.set()\nlate_gate.outside.wait(10)\nanswer = 42\n"
    (folder / f"{NAME}.py").write_text(text)
    (folder / "late_gate.py").write_text("import threading\ninside, outside = threading.Event(), threading.Event()\n")
    gate = importlib.import_module("late_gate")
    module = importlib.import_module(NAME)
    found: list[int] = []

    def look() -> None:
        found.append(module.answer)

    first = threading.Thread(target=look)
    first.start()
    assert gate.inside.wait(10)
    second = threading.Thread(target=lambda: (gate.outside.set(), look()))
    second.start()
    first.join()
    second.join()
    del sys.modules["late_gate"]
    assert found == [42, 42]


def test_a_module_that_is_not_there_is_not_there(folder: Path) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(NAME)
