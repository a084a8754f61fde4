"""The JSON file of kafka-delete-records.sh with partitions and offsets; errors have Kafka's wording."""

from __future__ import annotations

import json
from typing import Any

from ottla.base.names import TopicPartition
from ottla.cli.java.options import INTEGER_MAX, LONG_MAX, OptionError

VERSION = 1
FILE_BYTES_MAX = 64 * 1024 * 1024


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """The offset of each partition in the file."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError):
        raise OptionError(f"Unable to read file {path}") from None
    if len(data) > FILE_BYTES_MAX:
        raise OptionError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
    return parse_offsets(data)


def parse_offsets(data: bytes) -> dict[TopicPartition, int]:
    try:
        top = json.loads(data)
    except (ValueError, RecursionError):
        raise OptionError("The input string is not a valid JSON") from None
    if not isinstance(top, dict):
        raise OptionError(f"Expected JSON object, received {_text(top)}")
    version = _number(top, "version", INTEGER_MAX, "Integer") if "version" in top else VERSION
    if version != VERSION:
        raise OptionError(f"Not supported version field value {_text(version)}")
    if "partitions" not in top:
        raise OptionError("Missing partitions field")
    if not isinstance(top["partitions"], list):
        raise OptionError(f"Expected JSON array, received {_text(top['partitions'])}")
    return _offsets(top["partitions"])


def _offsets(items: list[Any]) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    doubles: dict[TopicPartition, None] = {}
    for item in items:
        if not isinstance(item, dict):
            raise OptionError(f"Expected JSON object, received {_text(item)}")
        topic = _field(item, "topic", str, "String")
        partition = TopicPartition(topic, _number(item, "partition", INTEGER_MAX, "Integer"))
        offset = _number(item, "offset", LONG_MAX, "Long")
        if partition in offsets:
            doubles[partition] = None
        offsets[partition] = offset
    if doubles:
        names = ",".join(map(str, doubles))
        raise OptionError(f"Offset json file contains duplicate topic partitions: {names}")
    return offsets


def _number(item: dict[str, Any], name: str, most: int, kind: str) -> int:
    number: int = _field(item, name, int, kind)
    if isinstance(number, bool) or abs(number) > most:
        raise OptionError(f"Expected `{kind}` value, received {_text(number)}")
    return number


def _field(item: dict[str, Any], name: str, wanted: type, kind: str) -> Any:
    if name not in item:
        raise OptionError(f"No such field exists: `{name}`")
    if not isinstance(item[name], wanted):
        raise OptionError(f"Expected `{kind}` value, received {_text(item[name])}")
    return item[name]


def _text(value: object) -> str:
    return json.dumps(value)
