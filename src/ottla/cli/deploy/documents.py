"""Files that people have edited, read with care: one line says what is wrong with one, and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ottla.base.properties import PropertiesError, read_properties
from ottla.cli.terminal import ToolError, UsageError

FILE_BYTES_MAX: Final = 1 << 20
NODES_MAX: Final = 100_000
DEPTH_MAX: Final = 50


def read_text(path: Path) -> str:
    """Raises UsageError for a file that cannot be read, is no text, or is too large to be what it should be."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}") from None
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {(problem.strerror or str(problem)).lower()}") from None
    if len(data) > FILE_BYTES_MAX:
        raise UsageError(f"{path} is larger than {FILE_BYTES_MAX} bytes: it is not what it should be")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no text (UTF-8)") from None


def read_properties_file(path: Path) -> dict[str, str]:
    try:
        return read_properties(read_text(path))
    except PropertiesError as problem:
        raise UsageError(f"{path}:{problem.line}: {problem.cause}") from None


def read_yaml(path: Path) -> dict[str, Any]:
    """A document that is a mapping. Anchors count, but not so many that a small file becomes a huge one."""
    try:
        import yaml  # noqa: PLC0415 (an extra)
    except ImportError:
        raise ToolError("files of YAML need PyYAML: pip install 'ottla[cli]'") from None
    text = read_text(path)
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is not None and _size(node, {}, 0) > NODES_MAX:
            raise UsageError(f"{path}: its anchors repeat each other until it is too large")
        document = loader.construct_document(node) if node is not None else None
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        mark = getattr(problem, "problem_mark", None)
        place = f":{mark.line + 1}" if mark is not None else ""
        raise UsageError(
            f"{path}{place}: no YAML: {getattr(problem, 'problem', None) or 'it makes no sense'}"
        ) from None
    if not isinstance(document, dict):
        raise UsageError(f"{path}: no mapping (key: value) but {type(document).__name__}")
    return {str(key): value for key, value in document.items()}


def _size(node: Any, known: dict[int, int], depth: int) -> int:
    """How large a node is with its aliases written out. Raises ValueError for one that contains itself."""
    if id(node) in known:
        size = known[id(node)]
        if size < 0:
            raise ValueError("it contains itself")
        return size
    if depth > DEPTH_MAX:
        raise ValueError("it is nested too deeply")
    known[id(node)] = -1
    size = 1
    if isinstance(node.value, list):
        for item in node.value:
            children = item if isinstance(item, tuple) else (item,)
            size += sum(_size(child, known, depth + 1) for child in children)
    known[id(node)] = size
    return size
