"""Times by Java's patterns."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from ottla.cli.java.dates import DatePatternError, format_java_date


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
