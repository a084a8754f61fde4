"""Equal and different values, and the report of a difference."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from ottla.pipelines.trials.differences import difference, matches_all_columns, matches_given_fields


def told(expected: list[dict[str, Any]], got: list[dict[str, Any]], **options: Any) -> list[str]:
    return difference("views", expected, got, fits=options.pop("fits", matches_all_columns), **options)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (1, 1.0),
        (0.3, 0.1 + 0.2),
        (2.5, Decimal("2.50")),
        (datetime(2026, 1, 1, 10, tzinfo=UTC), "2026-01-01T10:00:00.000000Z"),
        (datetime(2026, 1, 1, 10), "2026-01-01T12:00:00+02:00"),  # noqa: DTZ001 (as YAML gives it)
        ({"a": [1, None]}, {"a": [1, None]}),
    ],
)
def test_values_that_mean_the_same_are_the_same(expected: object, got: object) -> None:
    assert told([{"x": expected}], [{"x": got}]) == []


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (1, "1"),
        (True, 1),
        (False, 0),
        (None, "None"),
        (None, 0),
        (9007199254740993, 9007199254740992),
        (0.3, 0.30001),
        ("2026-01-01 10:00:00", "2026-01-01T10:00:00.000000Z"),  # text is not a time
        ([1, 2], [2, 1]),
    ],
)
def test_values_that_do_not_are_not(expected: object, got: object) -> None:
    assert told([{"x": expected}], [{"x": got}]) != []


def test_rows_may_come_in_any_order_but_not_more_or_less_often() -> None:
    assert told([{"x": 1}, {"x": 2}], [{"x": 2}, {"x": 1}]) == []
    assert told([{"x": 1}], [{"x": 1}, {"x": 1}])[1:] == ['  not expected  {"x": 1}']
    assert told([{"x": 1}, {"x": 1}], [{"x": 1}])[1:] == ['  missing       {"x": 1}']


def test_a_missing_column_is_not_null_and_one_too_many_is_a_difference() -> None:
    assert told([{"x": 1, "y": None}], [{"x": 1}])
    assert told([{"x": 1}], [{"x": 1, "y": None}])


def test_order_counts_on_request() -> None:
    lines = told([{"x": 1}, {"x": 2}], [{"x": 2}, {"x": 1}], is_ordered=True)

    assert lines == [
        "views: row 1 is another one",
        '  expected      {"x": 1}',
        '  got           {"x": 2}',
        "    x: expected 1, got 2",
    ]
    assert told([{"x": 1}], [{"x": 1}, {"x": 2}], is_ordered=True)[0] == "views: 1 row expected, 2 rows came"


def test_similar_rows_are_shown_together() -> None:
    expected = [{"page": "/a", "views": 2}, {"page": "/b", "views": 1}]
    got = [{"page": "/c", "views": 9}, {"page": "/a", "views": 3}]

    assert told(expected, got) == [
        "views: 0 of 2 rows came as expected, 2 rows came in all",
        '  expected      {"page": "/a", "views": 2}',
        '  got           {"page": "/a", "views": 3}',
        "    views: expected 2, got 3",
        '  missing       {"page": "/b", "views": 1}',
        '  not expected  {"page": "/c", "views": 9}',
    ]


def test_ignored_columns_are_ignored_in_rows_and_in_values_of_records() -> None:
    assert told([{"x": 1}], [{"x": 1, "at": "now"}], ignored=["at"]) == []
    assert told([{"value": {"x": 1}}], [{"value": {"x": 1, "at": 3}}], ignored=["at"], fits=matches_given_fields) == []


def test_of_records_only_given_fields_are_compared() -> None:
    got = [{"key": "k", "value": {"x": 1}, "headers": {"a": "b"}}]

    assert told([{"value": {"x": 1}}], got, fits=matches_given_fields) == []
    assert told([{"value": '{"x": 1.0}'}], got, fits=matches_given_fields) == []  # the value as text
    assert told([{"key": "k"}], got, fits=matches_given_fields) == []
    assert told([{"key": "other"}], got, fits=matches_given_fields)
    assert told([{"value": {}}], got, fits=matches_given_fields)


def test_keys_may_be_written_as_numbers() -> None:
    assert told([{"key": 5}], [{"key": "5"}], fits=matches_given_fields) == []
    assert told([{"key": 5}], [{"key": "6"}], fits=matches_given_fields)
    assert told([{"key": None}], [{"key": "5"}], fits=matches_given_fields)


def test_an_unspecific_expectation_leaves_the_row_of_a_specific_one() -> None:
    got = [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]

    assert told([{"key": "a"}, {"value": "1"}], got, fits=matches_given_fields) == []
    assert told([{"reason": "not JSON"}], [{"reason": 'not JSON: "x"', "value": "x"}], fits=matches_given_fields) == []


def test_many_differences_are_cut_off() -> None:
    lines = told([], [{"x": number} for number in range(14)])

    assert len(lines) == 12
    assert lines[-1] == "  … and 4 more"
