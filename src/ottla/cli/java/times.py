"""Dates, times and durations in Java's formats.

Parsed: `2026-11-15T08:00:00.000+01:00` and `P1DT2H`. Written: patterns of SimpleDateFormat such as `yyyy-MM-dd
HH:mm:ss:SSS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

from ottla.cli.terminal import ToolError

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|.", re.DOTALL)
MONTHS_SHORT = 3


class DatePatternError(ToolError):
    """A pattern that Java rejects, or an unsupported letter."""


def format_java_date(pattern: str, time_ms: int) -> str:
    """The time in the local zone."""
    seconds, milliseconds = divmod(time_ms, 1000)
    moment = datetime.fromtimestamp(seconds, UTC).astimezone()
    return "".join(_token(match, moment, milliseconds) for match in _TOKEN.finditer(pattern))


def _token(match: re.Match[str], moment: datetime, milliseconds: int) -> str:
    text = match.group()
    if match.group(1) is not None:
        return match.group(1).replace("''", "'") or "'"
    symbol = match.group(2)
    if symbol is None:
        if text == "'":
            raise DatePatternError("Unterminated quote")
        return text
    write = _LETTERS.get(symbol)
    if write is None:
        raise DatePatternError(f"Illegal pattern character '{symbol}'")
    return write(moment, milliseconds, len(text))


def _padded_number(value: Callable[[datetime], int]) -> Callable[[datetime, int, int], str]:
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
    "d": _padded_number(lambda moment: moment.day),
    "D": _padded_number(lambda moment: moment.timetuple().tm_yday),
    "H": _padded_number(lambda moment: moment.hour),
    "k": _padded_number(lambda moment: moment.hour or 24),
    "K": _padded_number(lambda moment: moment.hour % 12),
    "h": _padded_number(lambda moment: moment.hour % 12 or 12),
    "m": _padded_number(lambda moment: moment.minute),
    "s": _padded_number(lambda moment: moment.second),
    "S": lambda _, milliseconds, width: f"{milliseconds:0{width}d}",
    "a": lambda moment, _, __: moment.strftime("%p"),
    "E": lambda moment, _, width: moment.strftime("%a" if width < 4 else "%A"),
    "z": lambda moment, _, __: moment.strftime("%Z"),
    "Z": lambda moment, _, __: moment.strftime("%z"),
    "X": _zone,
}


_DATE = re.compile(r"(\d+)-(\d+)-(\d+)T(\d+):(\d+):(\d+)\.(\d+)(?:(Z)|([+-])(\d{1,2})(?::(\d{2}))?)")
_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(?:T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+)(?:[.,](\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
DAY_MS = 86_400_000
DIGITS_MAX = 15  # enough for every time in 64-bit milliseconds
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class TimeTextError(ToolError):
    """An invalid time; the message is Java's."""


def parse_date_time(text: str) -> int:
    """Milliseconds since 1970; a time without a zone is UTC."""
    parts = text.split("T")
    if len(parts) < 2:
        raise TimeTextError(
            "java.text.ParseException: Error parsing timestamp. It does not contain a 'T' according to ISO8601 format"
        )
    if not any(sign in parts[1] for sign in "+-Z"):
        text += "Z"
    match = _DATE.match(text)
    time_ms = None if match is None else _milliseconds(match)
    if time_ms is None:
        raise TimeTextError(f'java.text.ParseException: Unparseable date: "{text}"')
    return time_ms


def parse_duration(text: str) -> int:
    """A duration in milliseconds, rounded down; it may be negative."""
    match = _DURATION.fullmatch(text)
    if match is None or text[-1] in "PpTt" or any(len(part or "") > DIGITS_MAX for part in match.groups()):
        raise TimeTextError("Text cannot be parsed to a Duration")
    sign, days, hours, minutes, seconds, fraction = match.groups()
    whole_ms = 1000 * (86_400 * int(days or 0) + 3600 * int(hours or 0) + 60 * int(minutes or 0) + int(seconds or 0))
    nanoseconds = int((fraction or "").ljust(9, "0")) * (-1 if (seconds or "").startswith("-") else 1)
    total_ns = 1_000_000 * whole_ms + nanoseconds
    return (-total_ns if sign == "-" else total_ns) // 1_000_000


def _milliseconds(match: re.Match[str]) -> int | None:
    """The time in milliseconds; None if a field is out of range."""
    if any(len(part or "") > DIGITS_MAX for part in match.groups()):
        return None
    year, month, day, hour, minute, second, milliseconds = map(int, match.groups()[:7])
    if not (year and 1 <= month <= 12 and 1 <= day <= _days_in(year, month)):
        return None
    if hour > 23 or minute > 59 or second > 59 or milliseconds > 999:
        return None
    zone_minutes = 0
    if match.group(8) is None:
        zone_hours, zone_rest = int(match.group(10)), int(match.group(11) or 0)
        if zone_hours > 23 or zone_rest > 59:
            return None
        zone_minutes = (60 * zone_hours + zone_rest) * (-1 if match.group(9) == "-" else 1)
    minutes = 60 * hour + minute - zone_minutes
    return _day_number(year, month, day) * DAY_MS + minutes * 60_000 + second * 1000 + milliseconds


def _days_in(year: int, month: int) -> int:
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return _DAYS[month - 1] + (month == 2 and is_leap)


def _day_number(year: int, month: int, day: int) -> int:
    """Days since 1970 for any year; datetime ends with the year 9999."""
    years = year - (month <= 2)
    shifted = (month + 9) % 12  # March is the first month, so the leap day comes last
    leaps = years // 4 - years // 100 + years // 400
    return 365 * years + leaps + (153 * shifted + 2) // 5 + day - 1 - 719_468
