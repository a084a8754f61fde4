"""Which partitions shall have another leader: a file of them, for both tools.

{"partitions": [{"topic": "orders", "partition": 0}]}
"""

from __future__ import annotations

import json

from ottla.base.names import TopicPartition
from ottla.cli.reassign_plan import doubled
from ottla.cli.terminal import ToolError


class ElectionFileError(ToolError):
    """What is wrong with the file, in Kafka's words."""


def parse_partitions(text: str) -> list[TopicPartition]:
    try:
        fields = json.loads(text)
    except ValueError:
        raise ElectionFileError("Replica election data is empty") from None
    if not isinstance(fields, dict) or "partitions" not in fields:
        raise ElectionFileError('Replica election data is missing "partitions" field')
    try:
        partitions = [TopicPartition(str(row["topic"]), int(row["partition"])) for row in fields["partitions"]]
    except (KeyError, TypeError, ValueError) as problem:
        raise ElectionFileError(f"the list of partitions cannot be read: {problem!r}") from None
    doubles = doubled(partitions)
    if doubles:
        names = ", ".join(map(str, doubles))
        raise ElectionFileError(f"Replica election data contains duplicate partitions: [{names}]")
    return partitions
