"""Times are UTC, whatever the zone of the machine is.

Spark gives Python a time without zone, in that of the process, where it gives rows of a state store back and where rows
are collected; and takes one without zone for UTC where rows come out of a stateful step. In UTC all of them agree.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

ZONE, UTC = "TZ", "UTC"


def use_utc() -> None:
    """From here on, in this process and those that it starts."""
    _use(UTC)


@contextmanager
def in_utc() -> Iterator[None]:
    """For as long as this lasts; what was started meanwhile stays with it."""
    before = os.environ.get(ZONE)
    use_utc()
    try:
        yield
    finally:
        _use(before)


def _use(zone: str | None) -> None:
    if zone is None:
        os.environ.pop(ZONE, None)
    else:
        os.environ[ZONE] = zone
    if hasattr(time, "tzset"):  # Windows has none
        time.tzset()
