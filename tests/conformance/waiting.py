"""Waiting for what a broker may tell a little later: Apache Kafka publishes metadata after it has answered."""

import time
from collections.abc import Callable

EVENTUALLY_SECONDS_MAX = 5.0


def eventually(check: Callable[[], bool], seconds_max: float = EVENTUALLY_SECONDS_MAX) -> bool:
    """Whether the check becomes true in time."""
    deadline = time.monotonic() + seconds_max
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
