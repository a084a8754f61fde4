"""Formats log directories and reads their meta.properties."""

from __future__ import annotations

import os
from collections.abc import Sequence
from uuid import uuid4

from ottla.base.names import id_text
from ottla.cli.java.options import OptionError
from ottla.storage.errors import LogDirError
from ottla.storage.meta_properties import FILE_NAME, read_meta_properties, write_meta_properties

JAVA = "java.lang.RuntimeException"


def unformatted(paths: Sequence[str], node_id: int, cluster_id: str, ignore_formatted: bool) -> list[str]:
    """The directories that are not formatted; one of another broker or cluster is an error."""
    todo = []
    for path in paths:
        values = _read(path)
        if values is None:
            todo.append(path)
            continue
        _check_owner(path, values, node_id, cluster_id)
        if not ignore_formatted:
            raise OptionError(
                f"Log directory {path} is already formatted. "
                "Use --ignore-formatted to ignore this directory and format the others."
            )
    return todo


def format_folder(path: str, node_id: int, cluster_id: str, is_kraft: bool) -> None:
    """Create a directory with meta.properties; `is_kraft` selects the format of Kafka 4, else that of Kafka 3.9."""
    try:
        os.makedirs(path, exist_ok=True)
        write_meta_properties(path, node_id, cluster_id, id_text(uuid4()) if is_kraft else None)
    except OSError as problem:
        raise OptionError(f"Unable to create storage directory {path}: {problem.strerror}") from None


def info_lines(paths: Sequence[str]) -> tuple[list[str], int]:
    """The lines of `info`, and its exit code."""
    problems, found, first = [], [], None
    for path in paths:
        if not os.path.isdir(path):
            problems.append(f"{path} {'is not a directory' if os.path.exists(path) else 'does not exist'}")
            continue
        found.append(path)
        try:
            values = _read(path)
        except OptionError as problem:
            problems.append(str(problem))
            continue
        if values is None:
            problems.append(f"{path} is not formatted.")
        elif first is None:
            first = values
        elif _owner(first) != _owner(values):
            problems.append(
                f"Metadata for {path}/{FILE_NAME} was {_shown(values)}, but other directories featured {_shown(first)}"
            )
    lines = []
    if found:
        lines += [f"Found log director{'y' if len(found) == 1 else 'ies'}:", *(f"  {path}" for path in found), ""]
    if first is not None:
        lines += [f"Found metadata: {_shown(first)}", ""]
    if problems:
        lines += [f"Found problem{'' if len(problems) == 1 else 's'}:", *(f"  {text}" for text in problems), ""]
    return lines, 1 if problems else 0


def _read(path: str) -> dict[str, str] | None:
    try:
        return read_meta_properties(f"{path}/{FILE_NAME}")
    except LogDirError as problem:
        raise OptionError(str(problem)) from None
    except OSError as problem:
        raise OptionError(f"{path}/{FILE_NAME} cannot be read: {problem.strerror}") from None


def _owner(values: dict[str, str]) -> tuple[str | None, str | None]:
    return values.get("node.id", values.get("broker.id")), values.get("cluster.id")


def _check_owner(path: str, values: dict[str, str], node_id: int, cluster_id: str) -> None:
    stored_node, stored_cluster = _owner(values)
    file = f"{path}/{FILE_NAME}"
    if stored_cluster != cluster_id:
        raise OptionError(f"{JAVA}: Invalid cluster.id in: {file}. Expected {cluster_id}, but read {stored_cluster}")
    if stored_node != str(node_id):
        raise OptionError(f"{JAVA}: Stored node id {stored_node} doesn't match previous node id {node_id} in {file}")


def _shown(values: dict[str, str]) -> str:
    return "{" + ", ".join(f"{key}={values[key]}" for key in sorted(values)) + "}"
