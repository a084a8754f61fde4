"""Floating point numbers in Java's spelling."""

import math

import pytest

from ottla.operations.records.java_numbers import java_float, parse_double


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
