"""Keys and values as text, as JSON values and as bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.operations.records.deserializers import DeserializationError
from ottla.operations.records.formats import NAMES, FieldError, make_format

UUID_TEXT = "12345678-1234-5678-1234-567812345678"
EXAMPLES: dict[str, tuple[str, bytes, Any]] = {
    "string": ("é", b"\xc3\xa9", "é"),
    "short": ("-2", b"\xff\xfe", -2),
    "int": ("7", b"\0\0\0\7", 7),
    "long": ("-1", b"\xff" * 8, -1),
    "float": ("1.5", b"\x3f\xc0\0\0", 1.5),
    "double": ("1.5", b"\x3f\xf8" + bytes(6), 1.5),
    "boolean": ("true", b"\1", True),
    "uuid": (UUID_TEXT, UUID_TEXT.encode(), UUID_TEXT),
    "bytes": (r"a\x00\xFF", b"a\0\xff", r"a\x00\xFF"),
    "hex": ("00ff", b"\0\xff", "00ff"),
    "base64": ("AP8=", b"\0\xff", "AP8="),
    "json": ('{"a": [1]}', b'{"a":[1]}', {"a": [1]}),
}


@pytest.mark.parametrize("name", NAMES)
def test_every_format_makes_the_round_trip(name: str) -> None:
    text, data, value = EXAMPLES[name]
    format_ = make_format(name)
    assert format_.encode(text) == data
    assert format_.decode(data) == value
    assert format_.encode(json.loads(json.dumps(format_.decode(data)))) == data
    shown = format_.text(data).decode()
    assert shown == ('{"a":[1]}' if name == "json" else text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("int", "abc"),
        ("int", "2147483648"),
        ("int", True),
        ("int", 1.5),
        ("int", None),
        ("short", 40000),
        ("double", "one"),
        ("boolean", "yes"),
        ("uuid", "x"),
        ("hex", "0g"),
        ("hex", 7),
        ("base64", "*"),
        ("json", "{"),
    ],
)
def test_what_is_not_of_the_format_is_refused(name: str, value: Any) -> None:
    with pytest.raises(FieldError):
        make_format(name).encode(value)


@pytest.mark.parametrize(("name", "data"), [("int", b"123"), ("json", b"{"), ("boolean", b"2"), ("uuid", b"\xff")])
def test_bytes_that_are_not_of_the_format_are_refused(name: str, data: bytes) -> None:
    with pytest.raises(DeserializationError):
        make_format(name).decode(data)


def test_numbers_without_a_word_in_json_are_strings() -> None:
    double = make_format("double")
    assert double.decode(double.encode("nan")) == "nan"
    assert double.decode(double.encode("-inf")) == "-inf"


LAYOUT = "struct:id=int,price=double,name=string,raw=base64"


@given(
    st.integers(-(2**31), 2**31 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=9),
)
def test_a_struct_makes_the_round_trip(number: int, price: float, name: str) -> None:
    layout = make_format(LAYOUT)
    value = {"id": number, "price": price, "name": name, "raw": "AP8="}
    assert layout.decode(layout.encode(value)) == value
    assert json.loads(layout.text(layout.encode(value))) == value


def test_the_bytes_of_a_struct_are_as_documented() -> None:
    layout = make_format("struct:id=short,name=string")
    assert layout.encode('{"id": 1, "name": "ab"}') == b"\0\1\0\0\0\2ab"


@pytest.mark.parametrize("data", [b"", b"\0\1", b"\0\1\0\0\0\3ab", b"\0\1\0\0\0\2abc", b"\0\1\xff\xff\xff\xff"])
def test_bytes_that_are_no_such_struct_are_refused(data: bytes) -> None:
    with pytest.raises(DeserializationError):
        make_format("struct:id=short,name=string").decode(data)


@pytest.mark.parametrize("value", [{"id": 1}, {"id": 1, "name": "a", "more": 2}, [1], {"id": "x", "name": "a"}])
def test_values_that_are_no_such_struct_are_refused(value: Any) -> None:
    with pytest.raises(FieldError):
        make_format("struct:id=short,name=string").encode(value)


@pytest.mark.parametrize(
    "spec", ["struct:", "struct:a", "struct:a=what", "struct:a=int,a=int", "struct:=int", "avro", ""]
)
def test_formats_that_do_not_exist_are_refused(spec: str) -> None:
    with pytest.raises(FieldError):
        make_format(spec)
