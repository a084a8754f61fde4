"""Parser of OpenTelemetry's MetricsData; real clients push it in tests/conformance/test_client_metrics.py."""

import struct

import pytest

from ottla.base.errors import Error, KafkaError
from ottla.broker.telemetry.otlp import ATTRIBUTES_MAX, POINTS_MAX, TEXT_MAX, Point, read_metrics


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, content: bytes | str | int) -> bytes:
    """A length-delimited field, or a plain number."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(data)) + data


def double(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def integer(number: int, value: int) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<q", value)


def attribute(key: str, value: bytes, place: int = 7) -> bytes:
    return field(place, field(1, key) + field(2, value))


def metrics_data(*metrics: bytes) -> bytes:
    scope = field(1, field(1, "a scope")) + b"".join(field(2, metric) for metric in metrics)
    return field(1, field(1, b"") + field(2, scope))


def gauge(name: str, *points: bytes) -> bytes:
    return field(1, name) + field(3, "ms") + field(5, b"".join(field(1, point) for point in points))


def test_gauges_of_both_kinds_of_numbers_with_their_attributes() -> None:
    first = integer(3, 7) + double(4, 2.5) + attribute("topic", field(1, "orders")) + attribute("node", field(3, 3))
    data = metrics_data(gauge("latency", first, integer(6, -4) + attribute("on", field(2, 1))))
    assert read_metrics(data) == [
        Point("latency", (("node", "3"), ("topic", "orders")), 2.5, False, False),
        Point("latency", (("on", "true"),), -4.0, False, False),
    ]


@pytest.mark.parametrize(("temporality", "is_delta"), [(1, True), (2, False)])
def test_a_monotonic_sum_is_a_counter(temporality: int, is_delta: bool) -> None:
    body = field(1, double(4, 3.0)) + field(2, temporality) + field(3, 1)
    assert read_metrics(metrics_data(field(1, "sent") + field(7, body))) == [Point("sent", (), 3.0, True, is_delta)]


def test_a_sum_that_may_decrease_is_no_counter() -> None:
    body = field(1, double(4, 3.0)) + field(2, 2)
    assert read_metrics(metrics_data(field(1, "open") + field(7, body))) == [Point("open", (), 3.0, False, False)]


def test_count_and_sum_of_a_histogram_are_read() -> None:
    point = integer(4, 5) + double(5, 12.5) + attribute("topic", field(1, "a"), place=9)
    body = field(1, point) + field(2, 1)
    assert read_metrics(metrics_data(field(1, "size") + field(9, body))) == [
        Point("size.count", (("topic", "a"),), 5.0, True, True),
        Point("size.sum", (("topic", "a"),), 12.5, True, True),
    ]


def test_unknown_fields_are_skipped() -> None:
    strange = field(99, b"abc") + varint(98 << 3 | 5) + b"1234" + integer(97, 1) + field(96, 5)
    data = metrics_data(strange + gauge("a", strange + double(4, 1.0))) + strange
    assert [point.name for point in read_metrics(data)] == ["a"]


def test_empty_input_has_no_metrics() -> None:
    assert read_metrics(b"") == []


@pytest.mark.parametrize(
    "data",
    [b"\xff\xff\xffabc", b"\x0a\x7f", b"\x0b", b"\x80", b"\x80" * 11, b"\x09\x01", metrics_data(b"\x0a\x7f")],
    ids=["noise", "short", "group", "half a number", "endless number", "half a double", "damaged inside"],
)
def test_invalid_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(KafkaError) as refused:
        read_metrics(data)
    assert refused.value.error is Error.INVALID_RECORD


def test_numbers_attributes_and_texts_are_bounded() -> None:
    many = gauge("x" * 2 * TEXT_MAX, *[double(4, 1.0)] * (POINTS_MAX + 10))
    points = read_metrics(metrics_data(many))
    assert len(points) == POINTS_MAX
    assert len(points[0].name) == TEXT_MAX
    attributes = b"".join(attribute(f"key{place}", field(1, "v" * 2 * TEXT_MAX)) for place in range(100))
    (point,) = read_metrics(metrics_data(gauge("a", double(4, 1.0) + attributes)))
    assert len(point.attributes) == ATTRIBUTES_MAX
    assert len(point.attributes[0][1]) == TEXT_MAX
