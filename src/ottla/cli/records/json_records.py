"""Records as JSON, one object per line: written by `ottla consume --json`, read by `ottla produce --format json`.

    {"key": "k", "value": {"any": "JSON"}, "headers": [["name", "value"]], "partition": 0, "timestamp": 1700000000000}
Every field is optional. `topic` and `offset` are written, and ignored when read: the broker determines them.
"""

from __future__ import annotations

import json
from typing import Any

from ottla.cli.records.formatters import Message
from ottla.cli.records.line_reader import Headers, Line, LineError, LineReader
from ottla.operations.records.deserializers import DeserializationError
from ottla.operations.records.formats import FieldError, FieldFormat, make_format, text_bytes, text_value

FIELDS = frozenset({"topic", "partition", "offset", "timestamp", "key", "value", "headers"})
TIMESTAMP_MAX = 2**63
PARTITION_MAX = 2**31
QUOTED_MAX = 80


class JsonFormatter:
    """Formats records as one JSON object per line."""

    def __init__(self, key: FieldFormat | None = None, value: FieldFormat | None = None) -> None:
        self.key = key or make_format("string")
        self.value = value or make_format("string")

    def format(self, message: Message) -> bytes:
        fields = {
            "topic": message.topic,
            "partition": message.partition,
            "offset": message.offset,
            "timestamp": message.timestamp if message.timestamp_type else None,
            "key": None if message.key is None else self.key.decode(message.key),
            "value": None if message.value is None else self.value.decode(message.value),
            "headers": [[name, None if value is None else text_value(value)] for name, value in message.headers],
        }
        return json.dumps(fields).encode() + b"\n"


class JsonReader:
    """Parses JSON lines; same interface as LineReader."""

    def __init__(self, key: FieldFormat, value: FieldFormat) -> None:
        self.key = key
        self.value = value

    def parse(self, line: bytes, number: int) -> Line:
        """The record in line `number`."""
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            raise LineError(f"line {number} is not JSON: {_quoted(line)}") from None
        if not isinstance(fields, dict):
            raise LineError(f'line {number} is not an object such as {{"key": …, "value": …}}: {_quoted(line)}')
        unknown = sorted(set(fields) - FIELDS)
        if unknown:
            raise LineError(
                f"line {number} has the unknown field {unknown[0]!r}; known fields: {', '.join(sorted(FIELDS))}"
            )
        try:
            return self._line(fields)
        except (FieldError, DeserializationError) as problem:
            raise LineError(f"line {number}: {problem}") from None

    def _line(self, fields: dict[str, Any]) -> Line:
        key, value = fields.get("key"), fields.get("value")
        return Line(
            None if key is None else self.key.encode(key),
            None if value is None else self.value.encode(value),
            _headers(fields.get("headers")),
            _whole(fields, "partition", PARTITION_MAX),
            _whole(fields, "timestamp", TIMESTAMP_MAX),
        )


class TypedReader:
    """Parses lines of text with typed keys and values (numbers, hex and so on)."""

    def __init__(self, reader: LineReader, key: FieldFormat, value: FieldFormat) -> None:
        self.reader = reader
        self.key = key
        self.value = value

    def parse(self, line: bytes, number: int) -> Line:
        text = self.reader.parse(line, number)
        try:
            return text._replace(key=_typed(self.key, text.key), value=_typed(self.value, text.value))
        except (FieldError, DeserializationError) as problem:
            raise LineError(f"line {number}: {problem}") from None


def _typed(format_: FieldFormat, data: bytes | None) -> bytes | None:
    return None if data is None else format_.encode(data.decode("utf-8", "surrogateescape"))


def _headers(value: Any) -> Headers:
    """Headers from a list of pairs, or from an object if no name repeats."""
    pairs = list(value.items()) if isinstance(value, dict) else value or []
    headers: Headers = []
    for pair in pairs if isinstance(pairs, list) else [pairs]:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not isinstance(pair[0], str):
            raise FieldError(f"headers are a list of [name, value], not {str(pair)[:QUOTED_MAX]!r}")
        headers.append((pair[0], None if pair[1] is None else text_bytes(pair[1])))
    return headers


def _whole(fields: dict[str, Any], name: str, limit: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < limit:
        raise FieldError(f"{name} {str(value)[:QUOTED_MAX]} is not a number from 0 to {limit - 1}")
    return value


def _quoted(line: bytes) -> str:
    text = line[:QUOTED_MAX].decode("utf-8", "backslashreplace")
    return repr(text + "…" if len(line) > QUOTED_MAX else text)
