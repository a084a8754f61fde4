"""Parsing lines into records; the errors are those of Kafka's console producer."""

from __future__ import annotations

import io

import pytest

from ottla.cli.records import line_reader
from ottla.cli.records.line_reader import Line, LineError, LineReader, read_lines


def parse(line: bytes, **properties: str) -> Line:
    return LineReader({name.replace("_", "."): value for name, value in properties.items()}).parse(line, 1)


def test_a_plain_line_is_a_value() -> None:
    assert parse(b"a\tb") == Line(None, b"a\tb", [])
    assert parse(b"") == Line(None, b"", [])
    assert parse(b"\xff\x00") == Line(None, b"\xff\x00", [])


def test_a_key_precedes_the_first_separator() -> None:
    assert parse(b"k\tv\tw", parse_key="true") == Line(b"k", b"v\tw", [])
    assert parse(b"k::v", parse_key="TRUE", key_separator="::") == Line(b"k", b"v", [])
    assert parse(b"\tv", parse_key="true") == Line(b"", b"v", [])


def test_headers_precede_the_key() -> None:
    line = parse(b"h1:a,h2:\tk\tv", parse_key="true", parse_headers="true")
    assert line == Line(b"k", b"v", [("h1", b"a"), ("h2", b"")])
    assert parse(
        b"a=1;b=2|v", parse_headers="true", headers_delimiter="|", headers_separator=";", headers_key_separator="="
    ) == Line(None, b"v", [("a", b"1"), ("b", b"2")])


def test_the_marker_makes_null_of_anything() -> None:
    assert parse(b"N\tN\tN", parse_key="true", parse_headers="true", null_marker="N") == Line(None, None, [])
    assert parse(b"h:N\tv", parse_headers="true", null_marker="N").headers == [("h", None)]


@pytest.mark.parametrize(
    ("line", "properties", "words"),
    [
        (b"nokey", {"parse.key": "true"}, "No key separator found on line number 2: 'nokey'"),
        (b"v", {"parse.headers": "true"}, "No headers delimiter found on line number 2: 'v'"),
        (b"h2\tv", {"parse.headers": "true"}, "No header key separator found in pair 'h2' on line number 2"),
        (
            b"N:1\tv",
            {"parse.headers": "true", "null.marker": "N"},
            "Header keys should not be equal to the null marker 'N' as they can't be null",
        ),
    ],
)
def test_bad_lines_are_refused_in_kafkas_words(line: bytes, properties: dict[str, str], words: str) -> None:
    with pytest.raises(LineError) as caught:
        LineReader(properties).parse(line, 2)
    assert str(caught.value) == words


def test_errors_can_be_ignored() -> None:
    assert parse(b"nokey", parse_key="true", ignore_error="true") == Line(None, b"nokey", [])
    assert parse(b"h1:a,h2\tv", parse_headers="true", ignore_error="true").headers == [("h1", b"a"), ("h2", None)]


def test_a_long_bad_line_is_quoted_only_in_part() -> None:
    with pytest.raises(LineError) as caught:
        parse(b"x" * 10_000, parse_key="true")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        (
            {"parse.headers": "true", "headers.separator": ":"},
            "headers.separator and headers.key.separator may not be equal",
        ),
        (
            {"parse.headers": "true", "headers.delimiter": ","},
            "headers.delimiter and headers.separator may not be equal",
        ),
        ({"null.marker": "\t"}, "null.marker and key.separator may not be equal"),
        ({"key.separator": ""}, "key.separator may not be empty"),
    ],
)
def test_equal_separators_are_rejected(properties: dict[str, str], words: str) -> None:
    with pytest.raises(LineError, match=words):
        LineReader(properties)


def test_lines_end_in_either_way_and_the_last_one_needs_no_end() -> None:
    assert list(read_lines(io.BytesIO(b"a\r\nb\n\nc"))) == [b"a", b"b", b"", b"c"]


def test_an_overlong_line_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_reader, "LINE_BYTES_MAX", 10)
    assert list(read_lines(io.BytesIO(b"123456789\n1234567890"[:19]))) == [b"123456789", b"123456789"]
    with pytest.raises(LineError, match="longer than 10 bytes"):
        list(read_lines(io.BytesIO(b"x" * 11)))
