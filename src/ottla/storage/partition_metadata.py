"""`partition.metadata`: the topic id of a partition's directory.

A topic may be deleted and created again with the same name; the id distinguishes their directories.
"""

from __future__ import annotations

import base64
import binascii
import uuid

from ottla.storage import files
from ottla.storage.checkpoints import CheckpointError

FILE_NAME = "partition.metadata"


def write_topic_id(directory: str, topic_id: uuid.UUID) -> None:
    text = f"version: 0\ntopic_id: {encode_topic_id(topic_id)}"
    files.replace_file(f"{directory}/{FILE_NAME}", text.encode(), is_durable=False)


def read_topic_id(directory: str) -> uuid.UUID | None:
    """Return the stored id, None without the file. Raises CheckpointError for invalid content."""
    path = f"{directory}/{FILE_NAME}"
    try:
        lines = files.read_file(path).decode("ascii", "replace").split("\n")
    except FileNotFoundError:
        return None
    if len(lines) < 2 or lines[0] != "version: 0" or not lines[1].startswith("topic_id: "):
        raise CheckpointError(f"{path}: not a partition.metadata file of version 0")
    return decode_topic_id(lines[1].removeprefix("topic_id: ").strip(), path)


def encode_topic_id(topic_id: uuid.UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def decode_topic_id(text: str, path: str) -> uuid.UUID:
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except (binascii.Error, ValueError):
        raise CheckpointError(f"{path}: {text!r} is not a topic id") from None
