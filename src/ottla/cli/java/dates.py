"""Times written by a pattern of Java's SimpleDateFormat, such as `yyyy-MM-dd HH:mm:ss:SSS`."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|.", re.DOTALL)
MONTHS_SHORT = 3


class DatePatternError(Exception):
    """A pattern that Java would refuse, or a letter that is not known here."""


def format_java_date(pattern: str, time_ms: int) -> str:
    """The time in the local zone."""
    seconds, milliseconds = divmod(time_ms, 1000)
    moment = datetime.fromtimestamp(seconds, UTC).astimezone()
    return "".join(_token(match, moment, milliseconds) for match in _TOKEN.finditer(pattern))


def _token(match: re.Match[str], moment: datetime, milliseconds: int) -> str:
    text = match.group()
    if match.group(1) is not None:
        return match.group(1).replace("''", "'") or "'"
    letter = match.group(2)
    if letter is None:
        if text == "'":
            raise DatePatternError("Unterminated quote")
        return text
    write = _LETTERS.get(letter)
    if write is None:
        raise DatePatternError(f"Illegal pattern character '{letter}'")
    return write(moment, milliseconds, len(text))


def _numbers(value: Callable[[datetime], int]) -> Callable[[datetime, int, int], str]:
    return lambda moment, _, width: f"{value(moment):0{width}d}"


def _year(moment: datetime, _: int, width: int) -> str:
    return f"{moment.year % 100:02d}" if width == 2 else f"{moment.year:0{width}d}"


def _month(moment: datetime, _: int, width: int) -> str:
    if width >= MONTHS_SHORT:
        return moment.strftime("%b" if width == MONTHS_SHORT else "%B")
    return f"{moment.month:0{width}d}"


def _zone(moment: datetime, _: int, width: int) -> str:
    offset = moment.strftime("%z")
    return {1: offset[:3], 2: offset}.get(width, f"{offset[:3]}:{offset[3:]}")


_LETTERS: dict[str, Callable[[datetime, int, int], str]] = {
    "y": _year,
    "Y": _year,
    "M": _month,
    "d": _numbers(lambda moment: moment.day),
    "D": _numbers(lambda moment: moment.timetuple().tm_yday),
    "H": _numbers(lambda moment: moment.hour),
    "k": _numbers(lambda moment: moment.hour or 24),
    "K": _numbers(lambda moment: moment.hour % 12),
    "h": _numbers(lambda moment: moment.hour % 12 or 12),
    "m": _numbers(lambda moment: moment.minute),
    "s": _numbers(lambda moment: moment.second),
    "S": lambda _, milliseconds, width: f"{milliseconds:0{width}d}",
    "a": lambda moment, _, __: moment.strftime("%p"),
    "E": lambda moment, _, width: moment.strftime("%a" if width < 4 else "%A"),
    "z": lambda moment, _, __: moment.strftime("%Z"),
    "Z": lambda moment, _, __: moment.strftime("%z"),
    "X": _zone,
}
