"""`parse` returns the number as written: where Spark's own readers wrap, truncate or guess, the record dies."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.frames import living, records, through

from ottla.pipelines.steps.frame import REASON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "small byte, smalls array<byte>, paid decimal(10,2), all_paid array<decimal(10,2)>, "
    "inner struct<x:double,f:float,small:byte>, xs array<double>, by map<string,double>, counts map<string,int>"
)
GOOD: dict[str, dict[str, Any]] = {
    '{"small":127,"smalls":[-128,null,127],"inner":{"small":-128,"x":1e308}}': {
        "small": 127, "smalls": [-128, None, 127], "inner": {"x": 1e308, "f": None, "small": -128},
    },
    '{"paid":"12.5","all_paid":["-0.50",1,"0E-10","1E2"]}': {
        "paid": Decimal("12.50"), "all_paid": [Decimal("-0.50"), Decimal("1.00"), Decimal("0.00"), Decimal("100.00")],
    },
    '{"xs":[1.5,null],"by":{"a":null,"b":2.5}}': {"xs": [1.5, None], "by": {"a": None, "b": 2.5}},
    '{"counts":{"a":1,"b":2,"a":3}}': {"counts": {"a": 3, "b": 2}},
}  # fmt: skip
BAD = {
    '{"small":128}': 'field `small`: "128" is no byte',
    '{"small":255}': 'field `small`: "255" is no byte',
    '{"smalls":[1,200]}': "field `smalls`: a value in it does not fit",
    '{"inner":{"small":200}}': "field `inner`: a value in it does not fit",
    '{"paid":"1,25"}': 'field `paid`: "1,25" is no decimal(10,2)',
    '{"paid":"1.234,56"}': 'field `paid`: "1.234,56" is no decimal(10,2)',
    '{"paid":"NaN"}': 'field `paid`: "NaN" is no decimal(10,2)',
    '{"all_paid":["1,5"]}': 'field `all_paid`: "["1,5"]" is no array<decimal(10,2)>',
    '{"inner":{"x":1e400}}': "field `inner`: a number in it is too large",
    '{"inner":{"f":-1e39}}': "field `inner`: a number in it is too large",
    '{"xs":[1,1e999]}': "field `xs`: a number in it is too large",
    '{"by":{"a":1e999}}': "field `by`: a number in it is too large",
}


def test_json_gives_the_number_that_was_written(spark: SparkSession) -> None:
    frame = through(records(spark, GOOD), {"parse": {"format": "json", "schema": SCHEMA}})

    found = [{name: row[name] for name in wanted} for row, wanted in zip(living(frame), GOOD.values(), strict=True)]

    assert found == list(GOOD.values())


def test_of_equal_keys_of_a_map_only_the_last_is_there(spark: SparkSession) -> None:
    parse = {"parse": {"format": "json", "schema": SCHEMA}}
    select = {"select": {"a": "counts['a']", "keys": "sort_array(map_keys(counts))"}}

    frame = through(records(spark, ['{"counts":{"a":1,"b":2,"a":3}}']), parse, select)

    assert living(frame) == [{"a": 3, "keys": ["a", "b"]}]


def test_json_with_a_number_that_does_not_fit_dies(spark: SparkSession) -> None:
    frame = through(records(spark, BAD), {"parse": {"format": "json", "schema": SCHEMA}})

    assert [row[REASON] for row in frame.rows.collect()] == list(BAD.values())


def test_a_cast_to_a_number_that_is_too_large_kills(spark: SparkSession) -> None:
    parse = {"parse": {"format": "json", "schema": {"f": "string"}}}
    frame = through(records(spark, ['{"f":"1e400"}', '{"f":"Infinity"}']), parse, {"cast": {"f": "double"}})

    assert [row[REASON] for row in frame.rows.collect()] == ['column `f`: "1e400" is no double', None]


@pytest.mark.parametrize(("text", "reason"), [("1e400", 'field `f`: "1e400" is no double'), ("-Infinity", None)])
def test_text_with_a_number_that_is_too_large_dies(spark: SparkSession, text: str, reason: str | None) -> None:
    frame = through(records(spark, [text]), {"parse": {"format": "csv", "schema": "f double"}})

    assert [row[REASON] for row in frame.rows.collect()] == [reason]


def test_a_time_outside_of_the_years_1_to_9999_dies_however_it_is_written(spark: SparkSession) -> None:
    """Databases, Python's workers and most readers cannot hold it: one such record would end every run."""
    held = ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "0001-01-01T01:00:00+01:00"]
    others = ["0000-06-01T00:00:00Z", "9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+01:00"]
    values = ["{" + f'"at":"{text}"' + "}" for text in held + others]
    parse = {"parse": {"format": "json", "schema": "at timestamp"}}

    frame = through(records(spark, values), parse, {"select": {"at": "cast(at AS string)"}})
    reasons = [row[REASON] for row in frame.rows.select(REASON).collect()]

    assert [row["at"] for row in living(frame)] == [
        "0001-01-01 00:00:00",
        "9999-12-31 23:59:59.999999",
        "0001-01-01 00:00:00",
    ]
    assert reasons == [None] * 3 + [f'field `at`: "{text}" is no timestamp' for text in others]


@pytest.mark.parametrize(
    ("parse", "value", "cast"),
    [
        ({"format": "json", "schema": "at date"}, '{"at":"0000-06-01"}', {}),
        (
            {"format": "json", "schema": "at timestamp", "timestamp_format": "yyyy-MM-dd HH:mm:ss Z"},
            '{"at":"9999-12-31 23:59:59 -0500"}',
            {},
        ),
        ({"format": "csv", "schema": "at string"}, "0000-06-01", {"at": "timestamp"}),
        ({"format": "csv", "schema": "at long"}, "1767225600000", {"at": "timestamp"}),  # milliseconds for seconds
    ],
)
def test_the_same_for_dates_patterns_and_casts(
    spark: SparkSession, parse: dict[str, Any], value: str, cast: dict[str, str]
) -> None:
    steps: list[dict[str, Any]] = [{"parse": parse}, *([{"cast": cast}] if cast else [])]

    frame = through(records(spark, [value]), *steps)

    (reason,) = [row[REASON] for row in frame.rows.select(REASON).collect()]
    assert reason is not None
    assert "is no" in reason
