"""Times and spans as Java reads them: `2026-11-15T08:00:00.000+01:00` and `P1DT2H`."""

from __future__ import annotations

import re

_DATE = re.compile(r"(\d+)-(\d+)-(\d+)T(\d+):(\d+):(\d+)\.(\d+)(?:(Z)|([+-])(\d{1,2})(?::(\d{2}))?)")
_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(?:T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+)(?:[.,](\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
DAY_MS = 86_400_000
DIGITS_MAX = 15  # enough for any time that fits into 64 bits of milliseconds
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class TimeTextError(ValueError):
    """A text that is no time; says so in Java's words."""


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
    """A span in milliseconds, rounded down; it may be negative."""
    match = _DURATION.fullmatch(text)
    if match is None or text[-1] in "PpTt" or any(len(part or "") > DIGITS_MAX for part in match.groups()):
        raise TimeTextError("Text cannot be parsed to a Duration")
    sign, days, hours, minutes, seconds, fraction = match.groups()
    whole_ms = 1000 * (86_400 * int(days or 0) + 3600 * int(hours or 0) + 60 * int(minutes or 0) + int(seconds or 0))
    nanoseconds = int((fraction or "").ljust(9, "0")) * (-1 if (seconds or "").startswith("-") else 1)
    total_ns = 1_000_000 * whole_ms + nanoseconds
    return (-total_ns if sign == "-" else total_ns) // 1_000_000


def _milliseconds(match: re.Match[str]) -> int | None:
    """The time, None where a part of it is out of its range."""
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
    """Days since 1970, for any year: datetime ends with 9999."""
    years = year - (month <= 2)
    shifted = (month + 9) % 12  # March is the first month: the leap day comes last
    leaps = years // 4 - years // 100 + years // 400
    return 365 * years + leaps + (153 * shifted + 2) // 5 + day - 1 - 719_468
