"""Uses UTC for all times, regardless of the machine's zone.

Spark returns times to Python without zone, in the zone of the process, from a state store and from collected rows; and
reads times without zone as UTC from the output of a stateful step. With UTC everywhere, all of these agree.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

ZONE, UTC = "TZ", "UTC"


def use_utc() -> None:
    """For this process and later child processes."""
    _use(UTC)


@contextmanager
def in_utc() -> Iterator[None]:
    """Inside this context; processes started in it keep UTC."""
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
