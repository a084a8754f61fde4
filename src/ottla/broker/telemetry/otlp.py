"""Parser of pushed client metrics: OpenTelemetry's MetricsData in protobuf.

Pure: bytes in, points out. Reads only what Kafka clients send (values of gauges and sums; count and sum of histograms)
and skips the rest. Invalid protobuf raises KafkaError(INVALID_RECORD).

Rule: for any input, at most FIELDS_MAX fields are read, and at most POINTS_MAX points and texts of TEXT_MAX are stored.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from ottla.base.errors import Error, KafkaError

FIELDS_MAX: Final = 100_000  # a push of the Java producer has about 3,000
POINTS_MAX: Final = 2000
ATTRIBUTES_MAX: Final = 16
TEXT_MAX: Final = 256
VARINT_BYTES_MAX: Final = 10

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
GAUGE, SUM, HISTOGRAM = 5, 7, 9  # fields of Metric
DELTA: Final = 1  # an aggregation temporality

Attributes = tuple[tuple[str, str], ...]
Field = tuple[int, int, int, memoryview]  # field number, wire type, integer value (varint or fixed), bytes value
_NO_BYTES: Final = memoryview(b"")


class Point(NamedTuple):
    """One value of one metric."""

    name: str
    attributes: Attributes
    value: float
    is_counter: bool  # grows monotonically
    is_delta: bool  # the increase since the last push


def read_metrics(data: bytes) -> list[Point]:
    """Return all points of a push; surplus points are dropped."""
    return list(islice(_Reader().points(memoryview(data)), POINTS_MAX))


class _Reader:
    """Parser of one push; only `fields_left` changes."""

    def __init__(self) -> None:
        self.fields_left = FIELDS_MAX

    def points(self, data: memoryview) -> Iterator[Point]:
        for resource in self._submessages(data, 1):
            for scope in self._submessages(resource, 2):
                for metric in self._submessages(scope, 2):
                    yield from self._metric_points(metric)

    def _metric_points(self, metric: memoryview) -> Iterator[Point]:
        name = ""
        kinds: list[tuple[int, memoryview]] = []
        for number, wire_type, _, data in self._fields(metric):
            if number == 1 and wire_type == BYTES:
                name = _text(data)
            elif number in (GAUGE, SUM, HISTOGRAM) and wire_type == BYTES:
                kinds.append((number, data))
        for kind, body in kinds:
            yield from self._points_of_kind(name, kind, body)

    def _points_of_kind(self, name: str, kind: int, body: memoryview) -> Iterator[Point]:
        temporality, is_monotonic = 0, False
        for number, wire_type, value, _ in self._fields(body):
            if wire_type == VARINT and number == 2:
                temporality = value
            elif wire_type == VARINT and number == 3:
                is_monotonic = bool(value)
        is_delta = temporality == DELTA
        for data in self._submessages(body, 1):
            if kind == HISTOGRAM:
                yield from self._histogram_points(name, data, is_delta)
            else:
                value_of_point, attributes = self._number_point(data)
                yield Point(name, attributes, value_of_point, kind == SUM and is_monotonic, kind == SUM and is_delta)

    def _number_point(self, data: memoryview) -> tuple[float, Attributes]:
        value = 0.0
        attributes: list[tuple[str, str]] = []
        for number, wire_type, bits, content in self._fields(data):
            if number == 4 and wire_type == FIXED64:
                value = _double(bits)
            elif number == 6 and wire_type == FIXED64:
                value = float(_signed(bits))
            elif number == 7 and wire_type == BYTES:
                attributes.append(self._attribute(content))
        return value, _in_order(attributes)

    def _histogram_points(self, name: str, data: memoryview, is_delta: bool) -> Iterator[Point]:
        count, total = 0, 0.0
        attributes: list[tuple[str, str]] = []
        for number, wire_type, bits, content in self._fields(data):
            if number == 4 and wire_type == FIXED64:
                count = bits
            elif number == 5 and wire_type == FIXED64:
                total = _double(bits)
            elif number == 9 and wire_type == BYTES:
                attributes.append(self._attribute(content))
        ordered = _in_order(attributes)
        yield Point(f"{name}.count", ordered, float(count), True, is_delta)
        yield Point(f"{name}.sum", ordered, total, True, is_delta)

    def _attribute(self, data: memoryview) -> tuple[str, str]:
        key = value = ""
        for number, wire_type, _, content in self._fields(data):
            if number == 1 and wire_type == BYTES:
                key = _text(content)
            elif number == 2 and wire_type == BYTES:
                value = self._any_value(content)
        return key, value

    def _any_value(self, data: memoryview) -> str:
        for number, wire_type, bits, content in self._fields(data):
            if number == 1 and wire_type == BYTES:
                return _text(content)
            if number == 2 and wire_type == VARINT:
                return "true" if bits else "false"
            if number == 3 and wire_type == VARINT:
                return str(_signed(bits))
            if number == 4 and wire_type == FIXED64:
                return repr(_double(bits))
        return ""

    # ---- protobuf

    def _submessages(self, data: memoryview, wanted: int) -> Iterator[memoryview]:
        for number, wire_type, _, content in self._fields(data):
            if number == wanted and wire_type == BYTES:
                yield content

    def _fields(self, data: memoryview) -> Iterator[Field]:
        position, end = 0, len(data)
        while position < end:
            self.fields_left -= 1
            if self.fields_left < 0:
                raise _unreadable("too many fields")
            tag, position = _varint(data, position)
            number, wire_type = tag >> 3, tag & 7
            if wire_type == VARINT:
                value, position = _varint(data, position)
                yield number, wire_type, value, _NO_BYTES
                continue
            if wire_type == BYTES:
                size, position = _varint(data, position)
            elif wire_type in (FIXED64, FIXED32):
                size = 8 if wire_type == FIXED64 else 4
            else:
                raise _unreadable(f"wire type {wire_type}")
            if size > end - position:
                raise _unreadable(f"{size} bytes where {end - position} are left")
            content = data[position : position + size]
            position += size
            yield number, wire_type, 0 if wire_type == BYTES else int.from_bytes(content, "little"), content


def _in_order(attributes: list[tuple[str, str]]) -> Attributes:
    return tuple(sorted(attributes[:ATTRIBUTES_MAX]))


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for index in range(VARINT_BYTES_MAX):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
    raise _unreadable("a number without an end")


def _double(bits: int) -> float:
    return float(struct.unpack("<d", bits.to_bytes(8, "little"))[0])


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


def _text(data: memoryview) -> str:
    return bytes(data[: 4 * TEXT_MAX]).decode("utf-8", "replace")[:TEXT_MAX]


def _unreadable(why: str) -> KafkaError:
    return KafkaError(Error.INVALID_RECORD, f"The metrics cannot be read: {why}.")
