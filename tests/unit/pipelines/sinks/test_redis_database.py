"""Rows in Redis: unambiguous keys, fields, JSON, and the newer row."""

import json
import math

import pytest

from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.redis_database import append_commands, is_newer, json_text, put_commands, row_key
from ottla.pipelines.sinks.sql_tables import TableColumn

COLUMNS = [TableColumn("page", "text"), TableColumn("views", "integer"), TableColumn("share", "float")]


def test_keys_of_different_values_are_different() -> None:
    assert row_key("views", ["/a:b"]) == "views:/a:b"
    assert row_key("views", ["a", 1, True]) == "views:a:1:true"
    assert row_key("views", ["a:b", "c"]) != row_key("views", ["a", "b:c"])
    values = [None, "", "%null", "%25null", "null"]
    assert len({row_key("views", [value]) for value in values}) == len(values)


def test_a_hash_has_no_field_for_null() -> None:
    assert put_commands("hash", "k", ("a", 7, 0.5), COLUMNS, None) == [
        ("HSET", "k", "page", "a", "views", "7", "share", "0.5")
    ]
    assert put_commands("hash", "k", ("a", None, math.nan), COLUMNS, 500) == [
        ("HSET", "k", "page", "a"),
        ("HDEL", "k", "views", "share"),
        ("PEXPIRE", "k", 500),
    ]
    assert put_commands("hash", "k", (None, None, None), COLUMNS, None)[0] == ("HSET", "k", "page", "")
    assert append_commands("stream", "s", [("a", None, -math.inf)], COLUMNS) == [
        ("XADD", "s", "*", "page", "a", "share", "-Infinity")
    ]


def test_json_has_numbers_as_they_are_and_nested_values_inside() -> None:
    columns = [TableColumn("price", "decimal", "38,3"), TableColumn("tags", "json"), TableColumn("raw", "binary")]
    row = ("12345678901234567890.125", '["a"]', b"\x00\xff")
    assert json_text(row, columns) == '{"price":12345678901234567890.125,"tags":["a"],"raw":"AP8="}'
    assert json.loads(json_text(("\u20ac\0", None, math.inf), COLUMNS)) == {
        "page": "\u20ac\0",
        "views": None,
        "share": None,
    }
    assert append_commands("list", "l", [], COLUMNS) == []
    assert put_commands("string", "k", ("a", 1, 1.0), COLUMNS, 9)[0][3:] == ("PX", 9)


def test_a_row_without_a_value_is_older_than_any_other() -> None:
    assert is_newer(b"10", 9, "integer")
    assert not is_newer(b"9", 10, "integer")
    assert not is_newer(b"9", 9, "integer")
    assert is_newer(b"1", None, "integer")
    assert not is_newer(None, None, "integer")
    assert not is_newer(b"NaN", 1.0, "float")
    assert is_newer(b"2026-01-02T00:00:00.000000Z", "2026-01-01T09:00:00.000000Z", "timestamp")
    with pytest.raises(SinkError, match="'many' is stored, which is not a number"):
        is_newer(b"many", 1, "integer")
