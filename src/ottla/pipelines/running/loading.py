"""Loads a pipeline from a file: YAML as written, or Python that is run and writes one.

Rules:
1. Every problem of the file is a PipelineError with file and line, never a traceback of our code.
2. `changes` (from the command line), and before them those of the selected environment, are applied to the document
   before it is checked: one reader, one check. Spark settings of an environment are checked like those of the file.
3. A Python file runs under its own module name, so `if __name__ == "__main__":` does not apply, and its functions are
   pickled by value: workers cannot import it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from copy import copy
from dataclasses import fields
from pathlib import Path as FilePath
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import yaml

from ottla.pipelines.model.document import read_document
from ottla.pipelines.model.pipeline import Pipeline, PipelineFields, read_pipeline
from ottla.pipelines.model.problems import Lines, Path, PipelineError, Problem
from ottla.pipelines.model.variables import select_environment, substitute_variables
from ottla.pipelines.python_api import WrittenPipeline, collect_pipelines
from ottla.pipelines.spark.settings import ANSI, check_setting

MODULE = "ottla_pipeline_file"
MAPPINGS = ("spark", "client")  # fields whose keys contain dots

Changes = Mapping[str, object]


class Loaded(NamedTuple):
    """A pipeline, and the positions of its parts."""

    pipeline: Pipeline
    file: str
    lines: Lines

    def placed(self, wrong: PipelineError) -> PipelineError:
        """A later error, with file and line."""
        return PipelineError(wrong.problems, self.file, self.lines)


def load_pipeline(file: FilePath, changes: Changes | None = None, environment: str | None = None) -> Loaded:
    """`environment` is one of those in the file. Raises PipelineError, its problems with file and line."""
    if file.suffix == ".py":
        if environment is not None:
            raise _wrong(file, "--env: a Python file has no `environments`", cure="it may read os.environ itself")
        written = load_python(file)
        written.document = changed_document(written.document, changes)
        return Loaded(written.model(), str(file), written.lines)
    from ottla.pipelines.steps.step_table import STEPS  # noqa: PLC0415 (imports pyspark)

    document = read_document(file)
    try:
        values, own = select_environment(document.values, environment)
        values = substitute_variables(changed_document(values, own), os.environ)
        pipeline = read_pipeline(changed_document(values, changes), STEPS, _folder(file))
    except PipelineError as wrong:
        raise PipelineError(wrong.problems, str(file), document.lines) from None
    loaded = Loaded(pipeline, str(file), document.lines)
    _check_spark_settings(loaded, changes or {})
    return loaded


def load_python(file: FilePath) -> WrittenPipeline:
    """The one pipeline that the file writes. Raises PipelineError."""
    code = _compiled(file)
    module = ModuleType(MODULE)
    module.__file__ = str(file)
    folder = _folder(file)
    known = set(sys.modules)
    sys.path.insert(0, folder)
    try:
        with collect_pipelines() as made:
            _execute(code, module, file)
    finally:
        sys.path.remove(folder)
    _send_by_value(set(sys.modules) - known, folder)
    if len(made) != 1:
        names = ", ".join(str(each.document["name"]) for each in made)
        cause = f"writes {len(made)} pipelines ({names})" if made else "writes no pipeline"
        raise _wrong(file, cause, cure="call pipeline(name, stream, …) once in a file")
    return made[0]


def changed_document(values: Any, changes: Changes | None) -> Any:
    """Keys such as `every`, `spark.sql.shuffle.partitions` or `streams.views.from.topic`; the document itself is
    unchanged."""
    for key, value in (changes or {}).items():
        if isinstance(values, Mapping):
            values = _with(values, change_path(key), value, key)
    return values


def change_path(key: str) -> Path:
    """Pipeline fields may be written with dots, and so may settings of Spark and of the client."""
    plain = key.replace("-", "_").replace(".", "_")
    if plain in {field.name for field in fields(PipelineFields)}:
        return (plain,)
    first, _, rest = key.partition(".")
    if first in MAPPINGS and rest:
        return (first, key if first == "spark" else rest)
    return tuple(int(part) if part.isdigit() else part for part in key.split("."))


def parse_change(text: str) -> tuple[str, object]:
    """KEY=VALUE; the value is YAML. Raises ValueError."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"{text!r} is not KEY=VALUE")
    if key.strip().partition(".")[0] in MAPPINGS:
        return key.strip(), value  # settings are text, even if they look like a Boolean or number
    try:
        return key.strip(), yaml.safe_load(value)
    except yaml.YAMLError:
        raise ValueError(f"the value of {key.strip()} is not readable: {value!r}") from None


def _check_spark_settings(loaded: Loaded, changes: Changes) -> None:
    """A file may come from another source, and some settings run code; the command line is trusted, except that
    nothing may change what an error is."""
    settings = loaded.pipeline.fields.spark
    checked = [key for key in settings if key not in changes or key == ANSI]
    found = [(key, reason) for key in checked if (reason := check_setting(key, settings[key]))]
    if found:
        raise PipelineError([Problem(("spark", key), reason) for key, reason in found], loaded.file, loaded.lines)


def _with(values: Any, path: Path, value: object, key: str) -> Any:
    """A copy with the value at the path; names match regardless of dots and dashes."""
    changed = copy(values)
    first = path[0]
    if isinstance(changed, list):
        if not isinstance(first, int) or not 1 <= first <= len(changed):
            raise PipelineError(
                [Problem((), f"the change {key} leads nowhere: there is no {first} in a list of {len(changed)}")]
            )
        changed[first - 1] = _with(changed[first - 1], path[1:], value, key) if path[1:] else value
        return changed
    if not isinstance(changed, dict):
        raise PipelineError([Problem((), f"the change {key} has no target: no field can have a {first!r}")])
    name = next((name for name in changed if _plain(name) == _plain(first)), str(first))
    changed[name] = _with(changed.get(name, {}), path[1:], value, key) if path[1:] else value
    return changed


def _plain(name: object) -> str:
    return str(name).replace("-", "_").replace(".", "_")


def _compiled(file: FilePath) -> CodeType:
    try:
        return compile(file.read_bytes(), str(file), "exec")
    except OSError as problem:
        raise PipelineError([Problem((), f"cannot read {file}: {problem.strerror}")]) from None
    except SyntaxError as problem:
        raise _wrong(file, f"not readable as Python: {problem.msg}", problem.lineno) from None
    except ValueError as problem:
        raise _wrong(file, f"not readable as Python: {problem}") from None


def _execute(code: CodeType, module: ModuleType, file: FilePath) -> None:
    try:
        exec(code, module.__dict__)  # # noqa: S102 (the user's own pipeline)
    except PipelineError:
        raise
    except (Exception, SystemExit) as problem:  # # noqa: BLE001 (user code may raise anything)
        said = f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
        raise _wrong(file, " ".join(said.split()), _line_in(problem, str(file))) from None


def _wrong(file: FilePath, cause: str, line: int | None = None, cure: str = "") -> PipelineError:
    lines: dict[Path, int] = {(): line} if line else {}
    return PipelineError([Problem((), cause, cure)], str(file), lines)


def _line_in(problem: BaseException, file: str) -> int | None:
    """The innermost line of the file itself in the traceback."""
    line, trace = None, problem.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _send_by_value(names: set[str], folder: str) -> None:
    """Modules beside the file belong to the user, and workers cannot import them."""
    from pyspark import cloudpickle  # noqa: PLC0415 (only for Python files)

    for name in names:
        module = sys.modules[name]
        origin = getattr(module, "__file__", None)
        if origin and FilePath(origin).resolve().parent == FilePath(folder):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _folder(file: FilePath) -> str:
    """The folder of the file; for a link, that of the link."""
    return str(file.parent.resolve())
