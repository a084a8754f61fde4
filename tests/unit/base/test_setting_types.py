"""Texts to values and back, as Kafka reads and shows them."""

import pytest

from ottla.base.setting_types import (
    DOUBLE_MAX,
    PARSERS,
    BadValueError,
    ConfigType,
    between,
    format_double,
    format_value,
    gzip_level,
    list_problem,
    one_of,
    one_of_any_case,
    throttled_replicas,
)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, "TRUE", True),
        (ConfigType.BOOLEAN, " false ", False),
        (ConfigType.INT, "+2000000", 2_000_000),
        (ConfigType.INT, " -1 ", -1),
        (ConfigType.INT, "2147483647", 2**31 - 1),
        (ConfigType.SHORT, "-32768", -(2**15)),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.DOUBLE, "1e-1", 0.1),
        (ConfigType.DOUBLE, "3f", 3.0),
        (ConfigType.DOUBLE, ".5", 0.5),
        (ConfigType.DOUBLE, "-Infinity", float("-inf")),
        (ConfigType.LIST, "", ()),
        (ConfigType.LIST, " a , b,a ", ("a", "b")),
        (ConfigType.LIST, "a,", ("a", "")),
        (ConfigType.STRING, "\t gzip \n", "gzip"),
        (ConfigType.PASSWORD, " se cret ", " se cret "),
    ],
)
def test_a_text_becomes_a_value(kind: ConfigType, text: str, value: object) -> None:
    assert PARSERS[kind](text) == value


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (ConfigType.BOOLEAN, "yes", "Expected value to be either true or false"),
        (ConfigType.BOOLEAN, "", "Expected value to be either true or false"),
        (ConfigType.INT, "abc", "Not a number of type INT"),
        (ConfigType.INT, "", "Not a number of type INT"),
        (ConfigType.INT, "1_000", "Not a number of type INT"),
        (ConfigType.INT, "2147483648", "Not a number of type INT"),
        (ConfigType.INT, "1.0", "Not a number of type INT"),
        (ConfigType.INT, "9" * 100_000, "Not a number of type INT"),
        (ConfigType.SHORT, "99999", "Not a number of type SHORT"),
        (ConfigType.LONG, "9223372036854775808", "Not a number of type LONG"),
        (ConfigType.DOUBLE, "x", "Not a number of type DOUBLE"),
        (ConfigType.DOUBLE, "1_0.5", "Not a number of type DOUBLE"),
        (ConfigType.DOUBLE, "infinity", "Not a number of type DOUBLE"),
    ],
)
def test_an_invalid_value_has_a_reason(kind: ConfigType, text: str, reason: str) -> None:
    with pytest.raises(BadValueError, match=f"^{reason}$"):
        PARSERS[kind](text)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (2.0, "2.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1e-5, "1.0E-5"),
        (1.25e-5, "1.25E-5"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (123456789.125, "1.23456789125E8"),
        (-1e7, "-1.0E7"),
        (DOUBLE_MAX, "1.7976931348623157E308"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_fractions_are_written_as_java_writes_them(number: float, text: str) -> None:
    assert format_double(number) == text


def test_values_are_shown_as_texts() -> None:
    assert [format_value(value) for value in (None, True, 7, 0.5, ("a", "b"), (), "x")] == [
        None,
        "true",
        "7",
        "0.5",
        "a,b",
        "",
        "x",
    ]


def test_a_range_names_the_end_that_was_passed() -> None:
    check = between(1, 9)
    assert check("k", 1) is None
    assert check("k", 9) is None
    assert check("k", 0) == "Invalid value 0 for configuration k: Value must be at least 1"
    assert check("k", 10) == "Invalid value 10 for configuration k: Value must be no more than 9"
    assert between(0, 1)("k", 2.0) == "Invalid value 2.0 for configuration k: Value must be no more than 1"


def test_a_choice_names_the_first_wrong_item_and_all_right_ones() -> None:
    check = one_of("compact", "delete")
    assert check("k", ("delete", "compact")) is None
    assert (
        check("k", ("delete", "foo")) == "Invalid value foo for configuration k: String must be one of: compact, delete"
    )
    assert check("k", "") == "Invalid value  for configuration k: String must be one of: compact, delete"
    assert one_of_any_case("ES256")("k", "es256") is None
    assert "(case insensitive): ES256" in str(one_of_any_case("ES256")("k", "HS1"))


def test_gzip_levels_are_one_to_nine_or_minus_one() -> None:
    assert [level for level in range(-3, 12) if gzip_level("k", level) is None] == [-1, 1, 2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("items", [(), ("*",), ("0:1",), ("0:1", "15:3")])
def test_throttled_replicas_are_pairs_or_a_star(items: tuple[str, ...]) -> None:
    assert throttled_replicas("k", items) is None


@pytest.mark.parametrize("items", [("*", "1:1"), ("x",), ("1:2", "x"), ("1:",)])
def test_other_throttled_replicas_are_refused(items: tuple[str, ...]) -> None:
    assert str(throttled_replicas("k", items)).startswith(
        f"Invalid value [{', '.join(items)}] for configuration k: k must"
    )


def test_lists_may_not_have_empty_items_and_some_not_be_empty() -> None:
    assert list_problem("k", (), may_be_empty=True) is None
    assert list_problem("k", (), may_be_empty=False) == (
        "Configuration 'k' must not be empty. Valid values include: any non-empty value"
    )
    assert list_problem("k", ("a", ""), may_be_empty=True) == "Configuration 'k' values must not be empty."
