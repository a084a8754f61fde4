"""Bytes under the names of Kafka's deserializers; the texts are Java's."""

from __future__ import annotations

import math
import struct

import pytest

from ottla.operations.records.deserializers import DeserializationError, deserializer, java_float, parse_double

PACKAGE = "org.apache.kafka.common.serialization."


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        (PACKAGE + "StringDeserializer", b"\xffabc", b"\xffabc"),
        ("IntegerDeserializer", b"\x00\x00\x00\x05", b"5"),
        ("int", b"\xff\xff\xff\xff", b"-1"),
        ("long", b"\x00" * 7 + b"\x09", b"9"),
        ("short", b"\x01\x00", b"256"),
        ("boolean", b"\x01", b"true"),
        ("uuid", b"b365f7b5-4f83-4364-b9fd-f1abfb2e65a9", b"b365f7b5-4f83-4364-b9fd-f1abfb2e65a9"),
        ("bytes", b"a\\\x00\xff~", b"a\\x5C\\x00\\xFF~"),
        ("hex", b"\x00\xff", b"00ff"),
        ("float", b"\x00\x00\x00\x05", b"7.0E-45"),
        ("float", struct.pack(">f", 0.1), b"0.1"),
        ("double", struct.pack(">d", 1.0), b"1.0"),
        ("double", struct.pack(">d", -1.5e10), b"-1.5E10"),
        ("double", struct.pack(">d", 1e7), b"1.0E7"),
        ("double", struct.pack(">d", 1e-3), b"0.001"),
        ("double", struct.pack(">d", 1.25e-4), b"1.25E-4"),
        ("double", struct.pack(">d", float("nan")), b"NaN"),
        ("double", struct.pack(">d", float("-inf")), b"-Infinity"),
        ("double", struct.pack(">d", 0.0), b"0.0"),
        ("double", struct.pack(">d", 123456.789), b"123456.789"),
    ],
)
def test_bytes_become_text(name: str, data: bytes, expected: bytes) -> None:
    deserialize = deserializer(name)
    assert deserialize is not None
    assert deserialize(data) == expected


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("int", b"123", "Size of data received by IntegerDeserializer is not 4"),
        ("double", b"", "Size of data received by DoubleDeserializer is not 8"),
        ("float", b"12345", "Size of data received by FloatDeserializer is not 4"),
        ("boolean", b"x", "Unexpected byte received by BooleanDeserializer"),
        ("uuid", b"\xff", "Error parsing data into UUID"),
        ("void", b"", "Data should be null for a VoidDeserializer"),
    ],
)
def test_bytes_of_another_kind_are_refused(name: str, data: bytes, words: str) -> None:
    deserialize = deserializer(name)
    assert deserialize is not None
    with pytest.raises(DeserializationError, match=words):
        deserialize(data)


def test_an_unknown_name_has_no_deserializer() -> None:
    assert deserializer("com.example.Mine") is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5.0, "5.0"),
        (0.5, "0.5"),
        (9_999_999.0, "9999999.0"),
        (10_000_000.0, "1.0E7"),
        (99_999_999.0, "9.9999999E7"),
        (1_048_576_000.0, "1.048576E9"),
        (0.001, "0.001"),
        (0.00025, "2.5E-4"),
        (-12_345_678.5, "-1.23456785E7"),
        (9.223372036854775807e18, "9.223372036854776E18"),
        (math.inf, "Infinity"),
        (math.nan, "NaN"),
        (0.0, "0.0"),
    ],
)
def test_numbers_are_written_as_java_does(value: float, text: str) -> None:
    assert java_float(value) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1.0), (" 1.5e3 ", 1500.0), (".5", 0.5), ("1d", 1.0), ("2F", 2.0), ("-Infinity", -math.inf)],
)
def test_numbers_are_read_as_java_does(text: str, value: float) -> None:
    assert parse_double(text) == value


@pytest.mark.parametrize("text", ["", "abc", "1_000", "inf", "nan", "1e", "\u0661"])
def test_what_only_python_takes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a number"):
        parse_double(text)
