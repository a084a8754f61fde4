"""Parsing and formatting of setting values: Kafka's types, checks and error messages.

Everything here is pure. Parsers raise BadValueError with the reason ("Not a number of type INT"). A check takes the
key's name and the parsed value, and returns Kafka's message about the problem, or None.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
SHORT_MAX: Final = 2**15 - 1
DOUBLE_MAX: Final = 1.7976931348623157e308
NUMBER_LENGTH_MAX: Final = 64

# Plain strings: `re` compiles each at its first use, which shortens the broker's start.
_WHOLE_NUMBER: Final = r"[+-]?[0-9]+"
_FRACTION: Final = r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?)"
_COMMA: Final = r"\s*,\s*"
_THROTTLED_REPLICAS: Final = r"([0-9]+:[0-9]+)?(,[0-9]+:[0-9]+)*"
# The characters that Java's String.trim() removes: all up to the blank.
_BLANKS = "".join(map(chr, range(0x21)))

Check = Callable[[str, object], "str | None"]


class ConfigType(IntEnum):
    """A value's type, numbered as DescribeConfigs sends it."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class BadValueError(ValueError):
    """Why a text is not a value of its type, in Kafka's words."""


def invalid_value(name: str, value: object, reason: str) -> str:
    """Kafka's message about an invalid value."""
    return f"Invalid value {_in_java(value)} for configuration {name}: {reason}"


def trim(text: str) -> str:
    return text.strip(_BLANKS)


def parse_boolean(text: str) -> bool:
    word = trim(text).lower()
    if word not in ("true", "false"):
        raise BadValueError("Expected value to be either true or false")
    return word == "true"


def parse_int(text: str) -> int:
    return _parse_whole_number(text, INT_MAX, "INT")


def parse_short(text: str) -> int:
    return _parse_whole_number(text, SHORT_MAX, "SHORT")


def parse_long(text: str) -> int:
    return _parse_whole_number(text, LONG_MAX, "LONG")


def parse_double(text: str) -> float:
    word = trim(text)
    if len(word) > NUMBER_LENGTH_MAX or not re.fullmatch(_FRACTION, word):
        raise BadValueError("Not a number of type DOUBLE")
    return float(word.replace("Infinity", "inf") if word[-1] in "yN" else word.rstrip("dDfF"))


def parse_list(text: str) -> tuple[str, ...]:
    """The items of a comma-separated text, each once."""
    word = trim(text)
    return tuple(dict.fromkeys(re.split(_COMMA, word))) if word else ()


PARSERS: Final[dict[ConfigType, Callable[[str], Any]]] = {
    ConfigType.BOOLEAN: parse_boolean,
    ConfigType.STRING: trim,
    ConfigType.INT: parse_int,
    ConfigType.SHORT: parse_short,
    ConfigType.LONG: parse_long,
    ConfigType.DOUBLE: parse_double,
    ConfigType.LIST: parse_list,
    ConfigType.CLASS: trim,
    ConfigType.PASSWORD: str,
}


def format_value(value: object) -> str | None:
    """A value as DescribeConfigs shows it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format_double(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def format_double(number: float) -> str:
    """A double as Java writes it: 0.5, 1.0E-5, 1.7976931348623157E308."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    shortest = next(text for text in (f"{number:.{digits}e}" for digits in range(1, 18)) if float(text) == number)
    mantissa, _, exponent = shortest.partition("e")
    return f"{mantissa}E{int(exponent)}"


def between(smallest: float, largest: float | None = None) -> Check:
    """A number in this range, both ends included."""

    def check(name: str, value: object) -> str | None:
        assert isinstance(value, int | float)
        if value < smallest:
            return invalid_value(name, value, f"Value must be at least {smallest}")
        if largest is not None and value > largest:
            return invalid_value(name, value, f"Value must be no more than {largest}")
        return None

    return check


def one_of(*allowed: str) -> Check:
    """A text, or a list of texts, out of these."""

    def check(name: str, value: object) -> str | None:
        for item in value if isinstance(value, tuple) else (value,):
            if item == "" and isinstance(value, tuple):
                return empty_item(name)
            if item not in allowed:
                return invalid_value(name, item, f"String must be one of: {', '.join(allowed)}")
        return None

    return check


def one_of_any_case(*allowed: str) -> Check:
    """As one_of(), ignoring case."""

    def check(name: str, value: object) -> str | None:
        if str(value).upper() in allowed:
            return None
        return invalid_value(name, value, f"String must be one of (case insensitive): {', '.join(allowed)}")

    return check


def not_blank(name: str, value: object) -> str | None:
    return None if value else invalid_value(name, value, "String must be non-empty")


def gzip_level(name: str, value: object) -> str | None:
    if value == -1 or (isinstance(value, int) and 1 <= value <= 9):
        return None
    return invalid_value(name, value, "Value must be between 1 and 9 or equal to -1")


def throttled_replicas(name: str, value: object) -> str | None:
    assert isinstance(value, tuple)
    if value == ("*",) or re.fullmatch(_THROTTLED_REPLICAS, ",".join(value)):
        return None
    return invalid_value(
        name,
        value,
        f"{name} must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    )


def list_problem(name: str, items: tuple[str, ...], may_be_empty: bool) -> str | None:
    """Kafka's message about a list that is empty or has empty items."""
    if not items and not may_be_empty:
        return f"Configuration '{name}' must not be empty. Valid values include: any non-empty value"
    if "" in items:
        return empty_item(name)
    return None


def empty_item(name: str) -> str:
    return f"Configuration '{name}' values must not be empty."


def _parse_whole_number(text: str, largest: int, type_name: str) -> int:
    word = trim(text)
    if (
        len(word) > NUMBER_LENGTH_MAX
        or not re.fullmatch(_WHOLE_NUMBER, word)
        or not -largest - 1 <= int(word) <= largest
    ):
        raise BadValueError(f"Not a number of type {type_name}")
    return int(word)


def _in_java(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    return format_value(value) or ("null" if value is None else "")
