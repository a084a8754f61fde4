"""Loads user functions: `module:name`, in a file beside the pipeline or in an installed package.

The module of a file is pickled by value, so executors need no copy of it.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

NAME = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")


class CodeError(ValueError):
    """The text says why the function cannot be loaded."""


def name_problem(text: str) -> str | None:
    return None if NAME.fullmatch(text) else f"{text!r} is not written module:function"


def module_file(given: object) -> Iterator[str]:
    """The file of the function, if it may be beside the pipeline."""
    match = NAME.fullmatch(given) if isinstance(given, str) else None
    if match is not None:
        yield f"{match[1].replace('.', '/')}.py"


def find_function(text: str, folder: str) -> Callable[..., Any]:
    """Runs the module: only for names in the user's own pipeline. Raises CodeError."""
    match = NAME.fullmatch(text)
    if match is None:
        raise CodeError(str(name_problem(text)))
    module_name, name = match[1], match[2]
    path = Path(folder, *module_name.split(".")).with_suffix(".py")
    try:
        module = _from_file(module_name, path) if path.is_file() else importlib.import_module(module_name)
    except ModuleNotFoundError as problem:
        raise CodeError(f"there is no {path.name} in {Path(folder).resolve()}, and {problem}") from None
    except SyntaxError as problem:
        raise CodeError(f"{module_name} cannot be loaded: {type(problem).__name__}: {problem}") from problem
    except Exception as problem:  # user code
        raise CodeError(f"{module_name} cannot be loaded: {error_text(problem)}") from problem
    found = getattr(module, name, None)
    if not callable(found):
        raise CodeError(f"{module_name} has no function {name!r}")
    return found  # type: ignore[no-any-return]


def error_text(error: BaseException, function: Callable[..., Any] | None = None) -> str:
    """`mine.py:12: ValueError: bad`: the exception, and the innermost line in the function's own file."""
    own = getattr(getattr(function, "__code__", None), "co_filename", None)
    frames = traceback.extract_tb(error.__traceback__)
    place = next((each for each in reversed(frames) if each.filename == own), frames[-1] if frames else None)
    words = next(iter(str(error).splitlines()), "")
    what = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return what if place is None else f"{Path(place.filename).name}:{place.lineno}: {what}"


def _from_file(name: str, path: Path) -> Any:
    own_name = f"ottla_pipeline_{abs(hash(str(path.resolve())))}_{name.replace('.', '_')}"
    spec = importlib.util.spec_from_file_location(own_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[own_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[own_name]
        raise
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module
