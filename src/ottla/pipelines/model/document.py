"""A YAML file as plain values, together with the line of every value."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path as FilePath
from typing import Any

import yaml

from ottla.pipelines.model.problems import Path, PipelineError, Problem

FILE_BYTES_MAX = 1 << 20
DEPTH_MAX = 32
STANDARD_TAGS = "tag:yaml.org,2002:"
VALUES_MAX = 20_000  # also limits aliases that expand to many values
EVENTS_PER_VALUE = 3  # a key, a start and an end
NULL = f"{STANDARD_TAGS}null"
FAST_LOADER_TEXT_MIN = 64 << 10  # longer text goes to the C parser: ten times as fast, with less precise error messages
FAST_LOADER: Any = getattr(yaml, "CSafeLoader", None)


class Document:
    """`values` are the parsed contents; `lines` maps the path of a value to its line."""

    def __init__(self, values: object, lines: dict[Path, int], file: str) -> None:
        self.values = values
        self.lines = lines
        self.file = file

    def __repr__(self) -> str:
        return f"Document({self.file}, {len(self.lines)} values)"

    def error(self, *problems: Problem) -> PipelineError:
        return PipelineError(problems, self.file, self.lines)


def read_document(file: FilePath) -> Document:
    """Read a YAML file. Raises PipelineError for a file that is not readable YAML."""
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise PipelineError(
                [Problem((), f"{file} is larger than {FILE_BYTES_MAX >> 20} MiB, the limit for a pipeline")]
            )
        text = file.read_text(encoding="utf-8")
    except OSError as problem:
        raise PipelineError([Problem((), f"cannot read {file}: {problem.strerror}")]) from None
    except UnicodeDecodeError:
        raise PipelineError([Problem((), f"{file} is not UTF-8 text")]) from None
    return parse_document(text, str(file))


def parse_document(
    text: str, file: str, values_max: int = VALUES_MAX, keeps_text: Callable[[Path], bool] | None = None
) -> Document:
    """Parse YAML. A scalar for which `keeps_text` is true stays text, even if it looks like a number or a
    Boolean."""
    with _gc_disabled():
        is_long = len(text) > FAST_LOADER_TEXT_MIN and FAST_LOADER is not None
        _check_size(text, file, values_max)
        try:
            node = yaml.compose(text, Loader=FAST_LOADER if is_long else yaml.SafeLoader)
        except (yaml.YAMLError, RecursionError) as problem:
            raise _syntax_error(problem, file) from None
        document = Document(None, {}, file)
        if node is not None:
            document.values = _NodeReader(document, values_max, keeps_text).read(node, ())
        return document


def _check_size(text: str, file: str, values_max: int) -> None:
    """Limit depth and size before the tree is built. Thousands of nested brackets crash one parser and stall the
    other."""
    if FAST_LOADER is None:
        return
    depth = 0
    try:
        for number, event in enumerate(yaml.parse(text, Loader=FAST_LOADER)):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > DEPTH_MAX or number > EVENTS_PER_VALUE * values_max:
                cause = "nested too deeply" if depth > DEPTH_MAX else f"it has more than {values_max} values"
                mark = event.start_mark
                raise PipelineError([Problem((), cause)], file, {(): mark.line + 1} if mark else {})
    except yaml.YAMLError:
        return  # the real parser fails at the same place with a better message


@contextmanager
def _gc_disabled() -> Iterator[None]:
    """Switch the garbage collector off. A large file creates many objects and no garbage: collections would take longer
    than parsing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _NodeReader:
    def __init__(self, document: Document, values_max: int, keeps_text: Callable[[Path], bool] | None = None) -> None:
        self.document = document
        self.values_max = values_max
        self.keeps_text = keeps_text
        self.plain = yaml.SafeLoader("")

    def read(self, node: yaml.Node, path: Path) -> object:
        lines = self.document.lines
        lines[path] = node.start_mark.line + 1
        if len(path) > DEPTH_MAX or len(lines) > self.values_max:
            raise self.document.error(Problem(path[:3], "nested too deeply, or too many values", "expand the aliases"))
        if not node.tag.startswith(STANDARD_TAGS) or "python" in node.tag:
            raise self.document.error(Problem(path, f"{node.tag} is not a plain value"))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(entry, (*path, number)) for number, entry in enumerate(node.value)]
        if node.tag != NULL and self.keeps_text is not None and self.keeps_text(path):
            return str(node.value)
        try:
            return self.plain.construct_object(node)
        except (yaml.YAMLError, ValueError):
            raise self.document.error(Problem(path, f"{node.value!r} is not readable as {node.tag}")) from None

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, object]:
        found: dict[str, object] = {}
        for key_node, entry in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.document.error(Problem(path, "a name must be plain text"))
            key = str(key_node.value)
            if key in found:
                self.document.lines[(*path, key)] = key_node.start_mark.line + 1
                raise self.document.error(Problem((*path, key), f"{key!r} appears twice", "remove one of them"))
            found[key] = self.read(entry, (*path, key))
            self.document.lines[(*path, key)] = key_node.start_mark.line + 1
        return found


def _syntax_error(problem: yaml.YAMLError | RecursionError, file: str) -> PipelineError:
    mark = getattr(problem, "problem_mark", None)
    cause = getattr(problem, "problem", None) or str(problem).splitlines()[0]
    return PipelineError([Problem((), f"not readable as YAML: {cause}")], file, {(): mark.line + 1} if mark else {})
