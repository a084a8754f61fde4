"""Checkpoint files: Kafka's offset checkpoints, and `ottla.metadata.transaction`.

An offset checkpoint is a text file with a version, a count and one line per partition. Files are replaced as a whole
(temporary file, sync, rename, sync of the directory): after a crash they have the old or the new content. A damaged
file raises CheckpointError; the caller rebuilds the content or starts without it.

`ottla.metadata.transaction` contains the number of the last metadata transaction that created or deleted a partition in
this log directory. It is written after the metadata store has made that transaction durable, never before: a store with
a lower last number has lost transactions. Creating a topic does not wait for this file. After a crash the number may be
too low, which can hide a loss but never reports a false one. The rule only needs numbers that grow with every change;
offsets of a metadata log would also work.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.base.names import TopicPartition
from ottla.storage import files

VERSION = "0"
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
CLEANED_OFFSET_FILE = "cleaner-offset-checkpoint"


class CheckpointError(Exception):
    """A checkpoint file with invalid content."""


def read_offsets(directory: str, name: str) -> dict[TopicPartition, int]:
    """Return offsets by partition; empty if the file is missing or empty."""
    path = f"{directory}/{name}"
    try:
        data = files.read_file(path)
    except FileNotFoundError:
        return {}
    offsets: dict[TopicPartition, int] = {}
    for line in parse_lines(data, path):
        words = line.split()
        if len(words) != 3 or not words[1].isdecimal() or not words[2].isdecimal():
            raise CheckpointError(f"{path}: malformed line {line!r}")
        offsets[TopicPartition(words[0], int(words[1]))] = int(words[2])
    return offsets


def write_offsets(directory: str, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    text = format_lines(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
    files.replace_file(f"{directory}/{name}", text.encode(), is_durable=True)


def parse_lines(data: bytes, path: str) -> list[str]:
    """Return the entries of a checkpoint file, after checks of its version and count."""
    if not data:
        return []
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise CheckpointError(f"{path}: not a text file") from None
    if lines[0] != VERSION:
        raise CheckpointError(f"{path}: unknown version {lines[0]!r}")
    entries = lines[2:]
    if len(lines) < 2 or not lines[1].isdecimal() or int(lines[1]) != len(entries):
        raise CheckpointError(f"{path}: the number of entries is not what line 2 says")
    return entries


def format_lines(entries: Iterable[str]) -> str:
    lines = list(entries)
    return "\n".join([VERSION, str(len(lines)), *lines, ""])


logger = logging.getLogger("ottla.storage.checkpoints")

TRANSACTION_FILE: Final = "ottla.metadata.transaction"
TRANSACTION_VERSION: Final = 1


def read_transaction(directory: str) -> int | None:
    """Return the transaction number; None for a new directory, and for one of an older version or of Apache Kafka."""
    path = f"{directory}/{TRANSACTION_FILE}"
    try:
        fields = json.loads(files.read_file(path))
        number = fields["transaction"]
        if fields["version"] != TRANSACTION_VERSION or not isinstance(number, int) or number < 0:
            raise ValueError("the version or the number is invalid")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as problem:
        logger.warning("Cannot read %s (%s): continuing without it", path, problem)
        return None
    return int(number)


def write_transaction(directory: str, number: int, *, is_durable: bool = True) -> None:
    """Write the number. Blocks until it is on disk or, without `is_durable`, until the system has it."""
    text = json.dumps({"version": TRANSACTION_VERSION, "transaction": number}, separators=(",", ":"))
    files.replace_file(f"{directory}/{TRANSACTION_FILE}", text.encode(), is_durable=is_durable)
