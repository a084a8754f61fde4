"""Dates, times and durations in Java's formats (the numbers were printed by Java)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from ottla.cli.java.times import DatePatternError, TimeTextError, format_java_date, parse_date_time, parse_duration


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1970-01-01T00:00:00.000", 0),
        ("1970-01-01T00:00:00.000Z", 0),
        ("1969-12-31T23:59:59.999", -1),
        ("2023-11-14T22:13:23.000", 1_700_000_003_000),
        ("2023-11-14T22:13:23.000+01:00", 1_699_996_403_000),
        ("2023-11-14T22:13:23.000-01", 1_700_003_603_000),
        ("2024-02-29T00:00:00.5Z", 1_709_164_800_005),
        ("9999999-11-14T22:13:23.000", 315_507_348_713_603_000),
    ],
)
def test_times_are_read(text: str, time_ms: int) -> None:
    assert parse_date_time(text) == time_ms


@pytest.mark.parametrize(
    "text",
    [
        "2023-11-14",
        "x",
        "2023-11-14T22:13:23",
        "2023-11-14T22:13",
        "2023-13-14T22:13:23.000",
        "2023-02-29T00:00:00.000",
        "2023-11-14T24:00:00.000",
        "2023-11-14T00:00:00.000+99:00",
        "99999999999999999-11-14T22:13:23.000",
        "T",
        "",
    ],
)
def test_invalid_times_are_rejected(text: str) -> None:
    with pytest.raises(TimeTextError, match=r"java\.text\.ParseException"):
        parse_date_time(text)


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [
        ("P1D", 86_400_000),
        ("pt1h", 3_600_000),
        ("-P1D", -86_400_000),
        ("P-1D", -86_400_000),
        ("PT36H2M3.5S", 129_723_500),
        ("PT-0.5S", -500),
        ("P2DT3H4M", 183_840_000),
    ],
)
def test_spans_are_read(text: str, span_ms: int) -> None:
    assert parse_duration(text) == span_ms


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1D", "P1H", "P1Y", "PT1.1234567890S", "P99999999999999999999D"]
)
def test_invalid_durations_are_rejected(text: str) -> None:
    with pytest.raises(TimeTextError, match="Text cannot be parsed to a Duration"):
        parse_duration(text)


@pytest.fixture(autouse=True)
def _in_greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = os.environ.get("TZ")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    assert os.environ.get("TZ") == before
    time.tzset()


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd HH:mm:ss:SSS", "2026-03-05 14:07:09:042"),
        ("yy/M/d h:mm a", "26/3/5 2:07 PM"),
        ("EEE, d MMM yyyy 'at' HH 'o''clock'", "Thu, 5 Mar 2026 at 14 o'clock"),
        ("D Z X XXX", "64 +0000 +00 +00:00"),
    ],
)
def test_patterns_are_javas(pattern: str, text: str) -> None:
    assert format_java_date(pattern, 1772719629042) == text


@pytest.mark.parametrize("pattern", ["yyyy 'x", "b", "qq"])
def test_bad_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(DatePatternError):
        format_java_date(pattern, 0)
