"""Text to timestamps and dates, the same for every format, and independent of the current date.

Spark's cast reads "12:30" as today at that time and a plain number as seconds: a replay would give other rows, and
milliseconds would give the year 50,000. So text must look like a date, and numbers need a declared unit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql import types as T  # noqa: N812 (the usual alias)

ISO = "iso"
EPOCHS = {
    "epoch days": 86_400_000_000,
    "epoch seconds": 1_000_000,
    "epoch milliseconds": 1_000,
    "epoch microseconds": 1,
}
NUMBER = r"^-?[0-9]+([.][0-9]+)?$"
HTTPDATE = "dd/MMM/yyyy:HH:mm:ss Z"
NAMES = {
    "httpdate": HTTPDATE,
    "epoch": "epoch seconds",
    "epoch ms": "epoch milliseconds",
    "epoch_ms": "epoch milliseconds",
}
MICROS_MAX = 253_402_300_800_000_000  # the year 10,000: the limit of Python, Arrow and most databases
MICROS_MIN = -62_135_596_800_000_000  # the year 1
PATTERN_LETTERS = set("GyYMLdDQqEeFahHkKmsSnNVzOXxZu")
# Spark fills missing parts of a pattern: January, 1970, midnight, AM. So each part needs the next larger one.
REQUIRED_PARTS = (
    ("", "yu", "no year (yyyy)"),
    ("d", "ML", "a day and no month (MM; mm is minutes)"),
    ("hK", "a", "hours up to 12 and no AM or PM (a); HH is up to 23"),
    ("m", "HhkK", "minutes and no hour (HH); MM is the month"),
    ("s", "m", "seconds and no minutes (mm)"),
    ("S", "s", "a fraction and no seconds (ss; SS is the fraction)"),
)


@dataclass(frozen=True)
class TimeFormats:
    """The format of timestamps: one for all fields, or one per named field."""

    default: str = ISO
    by_field: Mapping[str, str] = field(default_factory=dict)

    def format_of(self, name: str) -> str:
        return normalize_format(self.by_field.get(name, self.default))

    def hint(self, name: str, raw: Column) -> Column:
        """For the reason of a record that dies."""
        chosen = self.format_of(name)
        if chosen != ISO:
            return F.lit(f" ({chosen})")
        hint = F.lit(" (number of seconds or milliseconds? say timestamp_format)")
        return F.when(raw.rlike(NUMBER), hint).otherwise("")


def normalize_format(text: str) -> str:
    return NAMES.get(
        text.strip().lower(), text.strip() if text.strip().lower() not in (ISO, *EPOCHS) else text.strip().lower()
    )


def read_times(given: str | Mapping[str, str] | None) -> TimeFormats:
    if given is None:
        return TimeFormats()
    return TimeFormats(given) if isinstance(given, str) else TimeFormats(ISO, dict(given))


def format_problem(text: str) -> str | None:
    """Why this is not a time format, or None. Letters that Spark does not know would stop the query."""
    chosen = normalize_format(text)
    if chosen == ISO or chosen in EPOCHS:
        return None
    bare = re.sub(r"'[^']*'", "", chosen)
    letters = {letter for letter in bare if letter.isalpha()}
    unknown = sorted(letters - PATTERN_LETTERS)
    if not letters or unknown or "'" in bare:
        what = (
            f"letter {unknown[0]!r}"
            if unknown
            else "no letters of a date pattern"
            if not letters
            else "an unbalanced quote"
        )
        return f"{text!r} has {what}"
    if re.search(r"[YwWe]", bare):
        return f"{text!r}: week-based patterns cannot be read"
    for part, needed, what in REQUIRED_PARTS:
        if (not part or letters & set(part)) and not letters & set(needed):
            return f"{text!r} has {what}"
    return None


def to_time(text: Column, wanted: T.DataType, written: str) -> Column:
    """The text as timestamp or date; null if it is not one."""
    if written in EPOCHS:
        return _from_number(text, EPOCHS[written]).cast(wanted)
    if written != ISO:
        return within_supported_years(F.try_to_timestamp(text, F.lit(written)).cast(wanted))
    looks_right = F.substring(text, 5, 1) == "-"
    if isinstance(wanted, T.DateType):  # Spark reads a date and ignores the rest
        looks_right = looks_right & text.try_cast("timestamp").isNotNull()
    moment = text.try_cast(wanted)
    # A time zone can change the year only near the first and the last year.
    return F.when(looks_right, F.when(text.between("0002", "9999"), moment).otherwise(within_supported_years(moment)))


def within_supported_years(moment: Column) -> Column:
    """A timestamp or date, null outside of the years 1 to 9999: most sinks, and Python, would fail on others."""
    return F.when(F.abs(F.year(moment) - 5000) < 5000, moment)


def _from_number(text: Column, micros: int) -> Column:
    """Uses decimals: fractions of seconds are exact, and nothing overflows silently."""
    scaled = (text.try_cast("decimal(29,6)") * F.lit(micros)).cast("decimal(38,6)")
    inside = (scaled >= F.lit(MICROS_MIN)) & (scaled < F.lit(MICROS_MAX))
    return F.when(inside, F.timestamp_micros(F.floor(scaled).cast("long")))
