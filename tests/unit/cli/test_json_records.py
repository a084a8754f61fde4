"""Records as JSON lines, in both directions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.records.formatters import Message
from ottla.cli.records.json_records import JsonFormatter, JsonReader, TypedReader
from ottla.cli.records.line_reader import Line, LineError, LineReader
from ottla.operations.records.formats import make_format

MESSAGE = Message("t", 2, 7, "CreateTime", 1794736824367, b"k1", b"a\nb", [("h1", b"a"), ("h2", None)])
TEXT = make_format("string")
OPTIONAL_BYTES = st.none() | st.binary(max_size=30)


def test_json_has_everything_on_one_line() -> None:
    line = JsonFormatter().format(MESSAGE)
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "timestamp": 1794736824367,
        "key": "k1",
        "value": "a\nb",
        "headers": [["h1", "a"], ["h2", None]],
    }
    assert json.loads(JsonFormatter().format(MESSAGE._replace(timestamp_type="")))["timestamp"] is None


@given(OPTIONAL_BYTES, OPTIONAL_BYTES, st.lists(st.tuples(st.text(max_size=5), OPTIONAL_BYTES), max_size=3))
def test_every_record_makes_the_round_trip(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = JsonFormatter().format(MESSAGE._replace(key=key, value=value, headers=headers))
    assert JsonReader(TEXT, TEXT).parse(line, 1) == Line(key, value, headers, 2, 1794736824367)


def test_fields_may_be_missing_and_values_may_be_structs() -> None:
    reader = JsonReader(TEXT, make_format("json"))
    assert reader.parse(b'{"value": {"a": [1, null]}}', 1) == Line(None, b'{"a":[1,null]}', [])
    assert reader.parse(b"{}", 1) == Line(None, None, [])
    assert reader.parse(b'{"headers": {"h": "v"}}', 1).headers == [("h", b"v")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"\x00\xff", "line 3 is not JSON"),
        (b"[" * 100_000, "line 3 is not JSON"),
        (b'"text"', "is not an object"),
        (b'{"vlaue": 1}', "unknown field 'vlaue'"),
        (b'{"partition": -1}', "partition -1 is not a number from 0"),
        (b'{"partition": true}', "partition True is not a number"),
        (b'{"timestamp": 1.5}', "timestamp 1.5 is not a number"),
        (b'{"timestamp": 9223372036854775808}', "is not a number"),
        (b'{"headers": [["a"]]}', "headers are a list of"),
        (b'{"headers": 7}', "headers are a list of"),
        (b'{"value": {"base64": "%%%"}}', "is not base64"),
    ],
)
def test_a_line_that_is_no_record_is_named(line: bytes, words: str) -> None:
    with pytest.raises(LineError, match="line 3") as caught:
        JsonReader(TEXT, TEXT).parse(line, 3)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 300


def test_lines_of_text_can_be_numbers() -> None:
    lines = LineReader({"parse.key": "true", "key.separator": ":", "null.marker": "N"})
    reader = TypedReader(lines, make_format("int"), make_format("double"))
    assert reader.parse(b"7:1.5", 1) == Line(b"\0\0\0\7", b"\x3f\xf8" + bytes(6), [])
    assert reader.parse(b"7:N", 1).value is None
    with pytest.raises(LineError, match="line 2: 'x' is not of type int"):
        reader.parse(b"x:1", 2)
