"""Which partitions shall have another leader: a file of them, for both tools.

{"partitions": [{"topic": "orders", "partition": 0}]}
"""

from __future__ import annotations

import json

from ottla.base.names import TopicPartition
from ottla.operations.errors import OperationError
from ottla.operations.reassignment.plan import doubled, list_in, partition_in


class ElectionFileError(OperationError):
    """What is wrong with the file, in Kafka's words."""


def check_json(text: str, path: str) -> None:
    """Say where a file is no JSON: Kafka's tool calls every such file empty."""
    try:
        json.loads(text)
    except ValueError as problem:
        raise ElectionFileError(f"{path} is not valid JSON: {problem}") from None


def parse_partitions(text: str) -> list[TopicPartition]:
    try:
        fields = json.loads(text)
    except ValueError:
        raise ElectionFileError("Replica election data is empty") from None
    if not isinstance(fields, dict) or "partitions" not in fields:
        raise ElectionFileError('Replica election data is missing "partitions" field')
    try:
        partitions = [partition_in(row) for row in list_in(fields, "partitions")]
    except ValueError as problem:
        raise ElectionFileError(f"the list of partitions cannot be read: {problem}") from None
    doubles = doubled(partitions)
    if doubles:
        names = ", ".join(map(str, doubles))
        raise ElectionFileError(f"Replica election data contains duplicate partitions: [{names}]")
    return partitions
