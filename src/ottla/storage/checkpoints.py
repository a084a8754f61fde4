"""Kafka's checkpoint files: small text files with a version, a count and that many lines.

They are replaced as a whole (temporary file, sync, rename, sync of the folder), so that a crash leaves the old or the
new one. A damaged file raises CheckpointError; the caller rebuilds or starts from nothing and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.base.names import TopicPartition
from ottla.storage import files

VERSION = "0"
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
CLEANED_OFFSET_FILE = "cleaner-offset-checkpoint"


class CheckpointError(Exception):
    """A checkpoint file that is not what we or Kafka write."""


def read_offsets(directory: str, name: str) -> dict[TopicPartition, int]:
    """Offsets by partition; a missing or empty file holds none."""
    path = f"{directory}/{name}"
    try:
        data = files.read_whole(path)
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
    files.replace_file(f"{directory}/{name}", text.encode(), durable=True)


def parse_lines(data: bytes, path: str) -> list[str]:
    """The entries of a checkpoint file, after a check of its head and count."""
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
