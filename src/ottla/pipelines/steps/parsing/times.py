"""Text to timestamps and dates, the same for every format, and never dependent on the day on which it is read.

Spark's own cast takes "12:30" for today at that time and a plain number for seconds: a replay would give other rows,
and milliseconds the year 50,000. So texts must look like a date, and numbers are taken only where the pipeline says of
what.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)
from pyspark.sql import types as T  # noqa: N812 (everybody's name for it)

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
MICROS_MAX = 253_402_300_800_000_000  # the year 10,000: what Python, Arrow and most databases can hold
MICROS_MIN = -62_135_596_800_000_000  # the year 1
PATTERN_LETTERS = set("GyYMLdDQqEeFahHkKmsSnNVzOXxZu")
# What a pattern lacks Spark makes up: January, 1970, midnight, the morning. So the smaller part needs the larger one.
NEEDED = (
    ("", "yu", "no year (yyyy)"),
    ("d", "ML", "a day and no month (MM; mm is minutes)"),
    ("hK", "a", "hours up to 12 and no AM or PM (a); HH is up to 23"),
    ("m", "HhkK", "minutes and no hour (HH); MM is the month"),
    ("s", "m", "seconds and no minutes (mm)"),
    ("S", "s", "a fraction and no seconds (ss; SS is the fraction)"),
)


@dataclass(frozen=True)
class Times:
    """How timestamps are written: one way for all fields, or one for each that is named."""

    everywhere: str = ISO
    by_field: Mapping[str, str] = field(default_factory=dict)

    def of(self, name: str) -> str:
        return known_name(self.by_field.get(name, self.everywhere))

    def words(self, name: str, raw: Column) -> Column:
        """For the reason of a record that dies."""
        chosen = self.of(name)
        if chosen != ISO:
            return F.lit(f" ({chosen})")
        hint = F.lit(" (number of seconds or milliseconds? say timestamp_format)")
        return F.when(raw.rlike(NUMBER), hint).otherwise("")


def known_name(text: str) -> str:
    return NAMES.get(
        text.strip().lower(), text.strip() if text.strip().lower() not in (ISO, *EPOCHS) else text.strip().lower()
    )


def read_times(given: str | Mapping[str, str] | None) -> Times:
    if given is None:
        return Times()
    return Times(given) if isinstance(given, str) else Times(ISO, dict(given))


def problem_of(text: str) -> str | None:
    """Why this is no way to write timestamps, or None. Letters that Spark does not know would stop the query."""
    chosen = known_name(text)
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
            else "a quote too many"
        )
        return f"{text!r} has {what}"
    if re.search(r"[YwWe]", bare):
        return f"{text!r}: week-based patterns cannot be read"
    for part, needed, what in NEEDED:
        if (not part or letters & set(part)) and not letters & set(needed):
            return f"{text!r} has {what}"
    return None


def to_time(text: Column, wanted: T.DataType, written: str) -> Column:
    """The text as timestamp or date; null where it is none."""
    if written in EPOCHS:
        return _from_number(text, EPOCHS[written]).cast(wanted)
    if written != ISO:
        return held(F.try_to_timestamp(text, F.lit(written)).cast(wanted))
    looks_right = F.substring(text, 5, 1) == "-"
    if isinstance(wanted, T.DateType):  # Spark reads a date before anything that stands behind it
        looks_right = looks_right & text.try_cast("timestamp").isNotNull()
    moment = text.try_cast(wanted)
    # Only next to the first and the last year a zone makes another year of what is written.
    return F.when(looks_right, F.when(text.between("0002", "9999"), moment).otherwise(held(moment)))


def held(moment: Column) -> Column:
    """A timestamp or date, null outside of the years 1 to 9999: most places and all Python would end the run on it."""
    return F.when(F.abs(F.year(moment) - 5000) < 5000, moment)


def _from_number(text: Column, micros: int) -> Column:
    """Through decimals: a fraction of seconds is exact, and nothing overflows silently."""
    scaled = (text.try_cast("decimal(29,6)") * F.lit(micros)).cast("decimal(38,6)")
    inside = (scaled >= F.lit(MICROS_MIN)) & (scaled < F.lit(MICROS_MAX))
    return F.when(inside, F.timestamp_micros(F.floor(scaled).cast("long")))
